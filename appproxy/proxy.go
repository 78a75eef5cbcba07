package appproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/internal/appaddr"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const (
	// idlePerApp is how many idle connections to one app are kept for a while: a page asks for many files at once.
	idlePerApp = 16
	idleFor    = 30 * time.Second
	// perApp bounds the connections to one app. Further requests wait.
	perApp = 256
	// answerTimeout is how long an app may take to start its answer. The rest of the answer has no limit.
	answerTimeout = 5 * time.Minute
)

// mode is how a request reached its app: by a host or by a path.
type mode struct {
	host   string // label
	path   string // prefix of the app's path, with a slash at its end; "" for a host
	rest   string // what the app is asked for: escaped, without the leading slash
	friend string // origin of a page of the same workspace that sends a cross-host request
}

type routeKey struct{}

// route holds what the proxy needs to know about a request.
type route struct {
	mode
	app     App
	host    string // for Judge.Dial
	traffic *Traffic
}

func newTransport(dial func(ctx context.Context, route string, port uint16) (net.Conn, error)) *http.Transport {
	// the host is a route of the Judge, and the caller has checked that the visitor may reach the port
	t := appaddr.Transport(dial)
	t.MaxIdleConnsPerHost, t.MaxIdleConns, t.IdleConnTimeout = idlePerApp, 1024, idleFor
	t.MaxConnsPerHost = perApp
	t.ResponseHeaderTimeout = answerTimeout
	t.DisableCompression = true // the encoding that browser and app agree on passes through
	return t
}

func (h *Handler) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     h.transport,
		FlushInterval: -1, // events and logs must not be held back
		Rewrite:       h.rewrite,
		ModifyResponse: func(resp *http.Response) error {
			h.confine(resp)
			resp.Request.Context().Value(routeKey{}).(route).traffic.answered(resp)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { h.fail(w, r, h.explain(r, err)) },
		ErrorLog:     slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
}

// forward proxies an allowed request.
func (h *Handler) forward(w http.ResponseWriter, r *http.Request, answer Answer, m mode) error {
	a := *answer.App
	switch {
	case a.Unusable != "":
		h.write(w, r, page{http.StatusNotFound, a.Name + " cannot be opened", a.Unusable, h.dashboard(a.path())})
		return nil
	case !a.Running:
		h.write(w, r, page{http.StatusServiceUnavailable, "The workspace " + a.Place.Workspace + " is not running",
			"Start it, and open " + a.Name + " again.", h.dashboard(a.path())})
		return nil
	}
	if m.rest == "" && r.URL.RawQuery == "" && a.Start != "" && isNavigation(r) {
		redirect(w, r, "/"+strings.TrimLeft(m.path+a.Start, "/")) // where the app begins, according to the template
		return nil
	}
	leave, ok := h.crowd.enter(answer.Route, a)
	if !ok {
		h.write(w, r, page{http.StatusServiceUnavailable, a.Name + " is busy",
			"Too many connections to it, or to its owner's apps, are open. Close some, or try again in a moment.",
			h.dashboard(a.path())})
		return nil
	}
	defer leave()
	visit, err := h.opts.Judge.Enter(r, answer)
	if err != nil {
		return err
	}
	defer visit.Leave()
	to := route{m, a, answer.Route, visit.Traffic}
	h.proxy.ServeHTTP(&finalAnswer{ResponseWriter: w, header: w.Header().Clone()},
		r.WithContext(context.WithValue(visit.Context, routeKey{}, to)))
	return nil
}

// rewrite makes the request for the app: without anything that identifies the visitor to this server.
func (h *Handler) rewrite(p *httputil.ProxyRequest) {
	to := p.In.Context().Value(routeKey{}).(route)
	scheme := "http"
	if to.app.TLS {
		scheme = "https"
	}
	if u, err := url.Parse(scheme + "://app/" + strings.TrimLeft(to.rest, "/")); err == nil {
		p.Out.URL = u
	} else { // the server has already parsed it
		p.Out.URL = &url.URL{Scheme: scheme, Path: "/"}
	}
	to.traffic.asks(p.Out)
	p.Out.URL.Host = net.JoinHostPort(to.host, strconv.Itoa(int(to.app.Port)))
	p.Out.URL.RawQuery = withoutParams(p.In.URL.RawQuery)
	p.Out.Host = p.In.Host
	header := p.Out.Header
	p.SetXForwarded()
	header.Del("X-Forwarded-For")
	if addr := clientaddr.Of(p.In); addr.IsValid() {
		header.Set("X-Forwarded-For", addr.String())
	}
	if h.secure {
		header.Set("X-Forwarded-Proto", "https") // also if a proxy in front terminates TLS
	}
	header.Del(sessionHeader)
	if credential.Bearer(header) != "" {
		header.Del("Authorization")
	}
	for _, name := range []string{"Forwarded", "X-Real-Ip"} {
		header.Del(name)
	}
	if to.path != "" {
		header.Del("Cookie")
		header.Del("Origin") // from a sandboxed page: "null"
		header.Set("X-Forwarded-Prefix", strings.TrimSuffix(to.path, "/"))
		return
	}
	kept := header.Values("Cookie")
	header.Del("Cookie")
	for _, line := range kept {
		if line = ownCookies(line); line != "" {
			header.Add("Cookie", line)
		}
	}
}

// ownCookies returns a Cookie header without this server's cookies.
func ownCookies(line string) string {
	var kept []string
	for part := range strings.SplitSeq(line, ";") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
		if !isOurs(name) && strings.TrimSpace(part) != "" {
			kept = append(kept, strings.TrimSpace(part))
		}
	}
	return strings.Join(kept, "; ")
}

// isOurs reports whether a cookie of that name belongs to this server: an app can neither see nor set it.
func isOurs(name string) bool {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, prefix := range []string{"__host-", "__secure-"} {
		name = strings.TrimPrefix(name, prefix)
	}
	switch name {
	case sessionCookie, tokenCookie, stateCookie:
		return true
	}
	return false
}

// explain converts an error on the way to an app into one that a person can act on.
func (h *Handler) explain(r *http.Request, err error) error {
	to := r.Context().Value(routeKey{}).(route)
	if f := fault.As(err); f != nil {
		return f
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fault.New(fault.Unavailable, "The request was canceled, or your session has ended.")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.Unavailable, "%s does not answer.", to.app.Name).
			WithDetail("It had %s to answer.", answerTimeout)
	}
	h.log.Debug("app does not answer", "agent", to.app.AgentID, "addr",
		netip.AddrPortFrom(netip.IPv6Loopback(), to.app.Port), "err", err)
	detail := fmt.Sprintf("Nothing listens on port %d of the workspace, or it closed the connection.", to.app.Port)
	switch to.app.Health {
	case sdk.AppInitializing:
		detail = "It is starting. " + detail
	case sdk.AppUnhealthy:
		detail = "Its health check fails. " + detail
	}
	return fault.New(fault.Unavailable, "%s does not answer.", to.app.Name).WithDetail("%s", detail)
}
