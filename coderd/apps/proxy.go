package apps

import (
	"context"
	"crypto/tls"
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

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

const (
	// idlePerApp is how many idle connections to one app are kept for a while: a page asks for many files at once.
	idlePerApp = 16
	idleFor    = 30 * time.Second
	// perApp bounds the connections to one app. Further requests wait.
	perApp = 256
	// answerTimeout is how long an app may take to start its answer. The rest of the answer has no limit.
	answerTimeout = 5 * time.Minute
	// maxHeader bounds the header of an app's answer, in bytes.
	maxHeader = 256 << 10
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
	app     app
	session *session // nil if the visit is not recorded
}

func newTransport(dial func(context.Context, uuid.UUID, uint16) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		// An address is an agent's id and a port. The caller has checked that the visitor may reach the agent.
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, text, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			agent, err := uuid.Parse(host)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, err
			}
			return dial(ctx, agent, uint16(port))
		},
		// WireGuard has proven the agent's identity. Behind it is the workspace's own loopback interface, whose names have
		// no certificates.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		MaxIdleConnsPerHost:    idlePerApp,
		MaxIdleConns:           1024,
		MaxConnsPerHost:        perApp,
		IdleConnTimeout:        idleFor,
		ResponseHeaderTimeout:  answerTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true, // the encoding that browser and app agree on passes through
	}
}

func (s *Service) newProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:     s.transport,
		FlushInterval: -1, // events and logs must not be held back
		Rewrite:       s.rewrite,
		ModifyResponse: func(resp *http.Response) error {
			s.confine(resp)
			resp.Request.Context().Value(routeKey{}).(route).session.answered(resp)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { s.fail(w, r, s.explain(r, err)) },
		ErrorLog:     slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
}

// forward proxies an allowed request.
func (s *Service) forward(w http.ResponseWriter, r *http.Request, who visitor, a app, m mode) error {
	switch {
	case a.unusable != "":
		s.write(w, r, page{http.StatusNotFound, a.name + " cannot be opened", a.unusable, s.dashboard(a.path())})
		return nil
	case !a.running:
		s.write(w, r, page{http.StatusServiceUnavailable, "The workspace " + a.place.workspace + " is not running", "Start it, and open " + a.name + " again.", s.dashboard(a.path())})
		return nil
	}
	if start := query(a.start.RawQuery, a.start.EscapedPath()); m.rest == "" && r.URL.RawQuery == "" && start != "" && isNavigation(r) {
		redirect(w, r, "/"+strings.TrimLeft(m.path+start, "/")) // where the app begins, according to the template
		return nil
	}
	ctx, leave, err := s.enter(r.Context(), who, a)
	if err != nil {
		return err
	}
	defer leave()
	s.used(ctx, who, a)
	session, done := s.recorded.request(s.sessionOf(r, who, a))
	defer done()
	httpapi.UnboundBody(r) // the size of a visitor's request to an app has no known limit
	s.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, routeKey{}, route{m, a, session})))
	return nil
}

// used records that a workspace is in use, at most once a minute.
func (s *Service) used(ctx context.Context, who visitor, a app) {
	if !who.actor.SignedIn() {
		return // visits by others do not keep the workspace running
	}
	_, err := s.touched.Get(ctx, a.workspace, func(ctx context.Context) (struct{}, error) {
		_, err := s.opts.DB.TouchWorkspace(ctx, a.workspace)
		return struct{}{}, err
	})
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot record use of workspace", "workspace", a.workspace, "err", err)
	}
}

// rewrite makes the request for the app: without anything that identifies the visitor to this server.
func (s *Service) rewrite(p *httputil.ProxyRequest) {
	to := p.In.Context().Value(routeKey{}).(route)
	scheme := "http"
	if to.app.tls {
		scheme = "https"
	}
	if u, err := url.Parse(scheme + "://app/" + strings.TrimLeft(to.rest, "/")); err == nil {
		p.Out.URL = u
	} else { // the server has already parsed it
		p.Out.URL = &url.URL{Scheme: scheme, Path: "/"}
	}
	to.session.asks(p.Out)
	p.Out.URL.Host = net.JoinHostPort(to.app.agentID.String(), strconv.Itoa(int(to.app.port)))
	p.Out.URL.RawQuery = withoutParams(p.In.URL.RawQuery)
	p.Out.Host = p.In.Host
	p.SetXForwarded()
	if s.secure {
		p.Out.Header.Set("X-Forwarded-Proto", "https") // also if a proxy in front terminates TLS
	}
	h := p.Out.Header
	h.Del(sessionHeader)
	if httpapi.BearerToken(h) != "" {
		h.Del("Authorization")
	}
	for _, name := range []string{"Forwarded", "X-Real-Ip"} {
		h.Del(name)
	}
	if to.path != "" {
		h.Del("Cookie")
		h.Del("Origin") // from a sandboxed page: "null"
		h.Set("X-Forwarded-Prefix", strings.TrimSuffix(to.path, "/"))
		return
	}
	kept := h.Values("Cookie")
	h.Del("Cookie")
	for _, line := range kept {
		if line = ownCookies(line); line != "" {
			h.Add("Cookie", line)
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

// confine removes everything from an app's answer that would affect more than the app.
func (s *Service) confine(resp *http.Response) {
	to := resp.Request.Context().Value(routeKey{}).(route)
	h := resp.Header
	h.Del("Strict-Transport-Security") // only the operator sets it, for all hosts
	if to.path != "" {
		confinePath(h)
		return
	}
	if to.friend != "" && h.Get("Access-Control-Allow-Origin") == "" {
		allow(h, to.friend)
	}
	lines := h.Values("Set-Cookie")
	h.Del("Set-Cookie")
	for _, line := range lines {
		if line = hostCookie(line); line != "" {
			h.Add("Set-Cookie", line)
		}
	}
}

// hostCookie returns a Set-Cookie line restricted to this host and otherwise unchanged; "" for a cookie that an app must not
// set. A cookie for a whole domain would reach other apps too.
func hostCookie(line string) string {
	parts := strings.Split(line, ";")
	name, _, _ := strings.Cut(parts[0], "=")
	if isOurs(name) || strings.TrimSpace(name) == "" {
		return ""
	}
	kept := parts[:1]
	for _, part := range parts[1:] {
		if attribute, _, _ := strings.Cut(part, "="); !strings.EqualFold(strings.TrimSpace(attribute), "domain") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, ";")
}

// confinePath makes an answer on the dashboard's host harmless there.
func confinePath(h http.Header) {
	for _, name := range []string{
		"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Access-Control-Allow-Credentials", "Cross-Origin-Opener-Policy",
		"Cross-Origin-Embedder-Policy", "Cross-Origin-Resource-Policy", "Report-To", "Reporting-Endpoints", "Nel", "Origin-Agent-Cluster",
		"Content-Security-Policy-Report-Only",
		// Alt-Svc would redirect the dashboard's own requests; a password prompt would appear under the dashboard's name.
		"Alt-Svc", "WWW-Authenticate", "Proxy-Authenticate",
	} {
		h.Del(name)
	}
	h.Add("Content-Security-Policy", sandbox) // in addition to the app's own: the stricter one applies
	h.Set("Referrer-Policy", "no-referrer")   // the address contains the token
	h.Set("X-Content-Type-Options", "nosniff")
	// The page's own requests come from its sandboxed origin. The token in the address is the only credential.
	h.Set("Access-Control-Allow-Origin", "*")
}

// explain converts an error on the way to an app into one that a person can act on.
func (s *Service) explain(r *http.Request, err error) error {
	to := r.Context().Value(routeKey{}).(route)
	if f := fault.As(err); f != nil {
		return f
	}
	var timeout net.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fault.New(fault.Unavailable, "The request was canceled, or your session has ended.")
	case errors.As(err, &timeout) && timeout.Timeout():
		return fault.New(fault.Unavailable, "%s does not answer.", to.app.name).WithDetail("It had %s to answer.", answerTimeout)
	}
	s.log.Debug("app does not answer", "agent", to.app.agentID, "addr", netip.AddrPortFrom(netip.IPv6Loopback(), to.app.port), "err", err)
	detail := fmt.Sprintf("Nothing listens on port %d of the workspace, or it closed the connection.", to.app.port)
	switch to.app.health {
	case sdk.AppInitializing:
		detail = "It is starting. " + detail
	case sdk.AppUnhealthy:
		detail = "Its health check fails. " + detail
	}
	return fault.New(fault.Unavailable, "%s does not answer.", to.app.name).WithDetail("%s", detail)
}
