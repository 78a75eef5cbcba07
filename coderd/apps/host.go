package apps

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
)

// serveHost answers a request for an app's host. It serves nothing of the dashboard.
func (s *Service) serveHost(w http.ResponseWriter, r *http.Request, label string) {
	if err := s.visitHost(w, r, label); err != nil {
		s.fail(w, r, err)
	}
}

func (s *Service) visitHost(w http.ResponseWriter, r *http.Request, label string) error {
	p, ok := parseLabel(label)
	if !ok {
		s.write(w, r, pageNotFound(s.dashboard("")))
		return nil
	}
	if strings.Contains(r.URL.RawQuery, codeParam) && r.URL.Query().Has(codeParam) && isNavigation(r) {
		return s.redeem(w, r, label)
	}
	if s.preflight(w, r, p) {
		return nil
	}
	who, err := s.hostVisitor(w, r, label)
	if err != nil {
		return err
	}
	target, err := s.resolve(r.Context(), p)
	if err != nil {
		return err
	}
	if !target.ok || !who.may(target.app) {
		switch {
		case who.actor.SignedIn(): // must not reveal whether the app exists
			s.write(w, r, pageNotFound(s.dashboard("")))
			return nil
		case isNavigation(r):
			return s.signIn(w, r, label)
		}
		return fault.New(fault.Unauthenticated, "You are not signed in to this app.").WithDetail("Open it in the browser, or send a session token in the header %s.", sessionHeader)
	}
	if who.means == byCookie && !s.sameApp(r, p) {
		return fault.New(fault.Forbidden, "This request comes from a page of another site or app.")
	}
	return s.forward(w, r, who, target.app, mode{host: label, rest: strings.TrimPrefix(r.URL.EscapedPath(), "/"), friend: s.friend(r, p)})
}

// isNavigation reports whether a browser opens a page in its own window with this request.
func isNavigation(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" {
		dest := r.Header.Get("Sec-Fetch-Dest")
		return mode == "navigate" && (dest == "document" || dest == "")
	}
	return r.Header.Get("Upgrade") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// sameApp reports whether the visitor intended a request that carries the visitor's cookie: it comes from a page of this app
// or of the same workspace, or opens a page. Apps' hosts are siblings, so browsers add the cookie to requests from another
// app's page.
func (s *Service) sameApp(r *http.Request, p place) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		return strings.EqualFold(origin, s.opts.AccessURL.Scheme+"://"+r.Host) || s.sameWorkspace(origin, p)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none", "": // without the header: not a browser of this decade, and no Origin either
		return true
	}
	return isNavigation(r)
}

// sameWorkspace reports whether an origin is that of an app of the same agent: a program there reaches the app anyway.
func (s *Service) sameWorkspace(origin string, p place) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != s.opts.AccessURL.Scheme {
		return false
	}
	label, ok := s.hosts.label(u.Host)
	other, valid := parseLabel(label)
	return ok && valid && s.hosts.origin(label) == origin && other.owner == p.owner && other.workspace == p.workspace && other.agent == p.agent
}

// friend returns the origin of a page of the same workspace that sends a cross-host request, "" for every other request.
func (s *Service) friend(r *http.Request, p place) string {
	origin := r.Header.Get("Origin")
	if origin == "" || strings.EqualFold(origin, s.opts.AccessURL.Scheme+"://"+r.Host) || !s.sameWorkspace(origin, p) {
		return ""
	}
	return origin
}

// preflight answers, in place of the app, whether a page of the same workspace may send a cross-host request: the browser
// asks without the cookie that it would need to reach the app.
func (s *Service) preflight(w http.ResponseWriter, r *http.Request, p place) bool {
	origin := s.friend(r, p)
	if r.Method != http.MethodOptions || origin == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	allow(w.Header(), origin)
	w.Header().Set("Access-Control-Allow-Methods", r.Header.Get("Access-Control-Request-Method"))
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" {
		w.Header().Set("Access-Control-Allow-Headers", names)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

func allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Credentials", "true")
	h.Add("Vary", "Origin")
}
