package appproxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// serveHost answers a request for an app's host. It serves nothing of the dashboard.
func (h *Handler) serveHost(w http.ResponseWriter, r *http.Request, label string) {
	if err := h.visitHost(w, r, label); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) visitHost(w http.ResponseWriter, r *http.Request, label string) error {
	p, ok := parseLabel(label)
	if !ok {
		h.write(w, r, pageNotFound(h.dashboard("")))
		return nil
	}
	if carriesCode(r) {
		token, err := h.redeem(w, r, Exchange{Place: p})
		if err != nil {
			return err
		}
		if token != "" {
			h.setCookie(w, tokenCookie, token.Reveal(), TokenLifetime)
		}
		redirect(w, r, cleanURI(r.URL)) // without a token the app asks again
		return nil
	}
	if h.preflight(w, r, p) {
		return nil
	}
	a, err := h.opts.Judge.Decide(r, Question{Place: p, Proof: h.hostProof(r)})
	if err != nil {
		return err
	}
	if a.App == nil {
		switch {
		case a.SignedIn: // must not reveal whether the app exists
			h.write(w, r, pageNotFound(h.dashboard("")))
			return nil
		case isNavigation(r):
			h.signIn(w, r, h.hosts.origin(label))
			return nil
		case h.friend(r, p) != "":
			return fault.New(fault.Unauthenticated, "You are not signed in to this app.").
				WithDetail("Open %s/ in this browser once; then pages of the same workspace can call it.",
					h.hosts.origin(label))
		case h.away():
			return fault.New(fault.Unauthenticated, "You are not signed in to this app.").
				WithDetail("Open it in the browser. Programs that send a session token reach it at %s.",
					h.opts.Dashboard)
		}
		return fault.New(fault.Unauthenticated, "You are not signed in to this app.").
			WithDetail("Open it in the browser, or send a session token in the header %s.", sessionHeader)
	}
	if a.By == ByHost && a.Token != "" {
		h.setCookie(w, tokenCookie, a.Token.Reveal(), TokenLifetime)
	}
	if a.By == ByHost && !h.sameApp(r, p) {
		return fault.New(fault.Forbidden, "This request comes from a page of another site or app.")
	}
	return h.forward(w, r, a, mode{host: label, rest: strings.TrimPrefix(r.URL.EscapedPath(), "/"),
		friend: h.friend(r, p)})
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

// sameApp reports whether the visitor intended a request that carries the visitor's cookie: it comes from a page of
// this app or of the same workspace, or opens a page. Apps' hosts are siblings, so browsers add the cookie to requests
// from another app's page.
func (h *Handler) sameApp(r *http.Request, p Place) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		return strings.EqualFold(origin, h.hosts.scheme+"://"+r.Host) || h.sameWorkspace(origin, p)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none", "": // without the header: not a browser of this decade, and no Origin either
		return true
	}
	return isNavigation(r)
}

// sameWorkspace reports whether an origin is that of an app of the same agent: a program there reaches the app anyway.
func (h *Handler) sameWorkspace(origin string, p Place) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != h.hosts.scheme {
		return false
	}
	label, ok := h.hosts.label(u.Host)
	other, valid := parseLabel(label)
	return ok && valid && h.hosts.origin(label) == origin && other.Owner == p.Owner && other.Workspace == p.Workspace &&
		other.Agent == p.Agent
}

// friend returns the origin of a page of the same workspace that sends a cross-host request, "" for every other
// request.
func (h *Handler) friend(r *http.Request, p Place) string {
	origin := r.Header.Get("Origin")
	if origin == "" || strings.EqualFold(origin, h.hosts.scheme+"://"+r.Host) || !h.sameWorkspace(origin, p) {
		return ""
	}
	return origin
}

// preflight answers, in place of the app, whether a page of the same workspace may send a cross-host request: the
// browser asks without the cookie that it would need to reach the app.
func (h *Handler) preflight(w http.ResponseWriter, r *http.Request, p Place) bool {
	origin := h.friend(r, p)
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
