package appproxy

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/credential"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Apps by path share the host of other apps, and often the dashboard's, so they must not share its origin: their pages
// are sandboxed. A browser gives a sandboxed page a unique origin: the page reads no cookie, stores nothing, and its
// requests carry no session. To let the page's own files and requests through anyway, the server redirects the visitor
// to an address that contains a token, which works for this one app:
//
//	/@ann/dev.main/apps/code/            with the session ──▶ /@ann/dev.main/apps/code/~<token>/
//	/@ann/dev.main/apps/code/~<token>/…  proxied, sandboxed
//
// A host without the dashboard's sessions gets the token from the dashboard, as an app's own host does.
//
// Programs that need cookies, storage or service workers do not work this way and need their own host; if the server
// has hosts for apps, addresses by path only redirect there.

// sandbox lists what a page may do in addition to running scripts in its own origin. It must never have
// allow-same-origin.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups " +
	"allow-popups-to-escape-sandbox allow-scripts"

func (h *Handler) servePath(w http.ResponseWriter, r *http.Request, p pathApp) {
	if err := h.visitPath(w, r, p); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) visitPath(w http.ResponseWriter, r *http.Request, p pathApp) error {
	if h.opts.NoPaths && h.hosts.suffix == "" {
		h.write(w, r, page{http.StatusNotFound, "Apps by path are turned off",
			"The server runs with --disable-path-apps and without a host for apps (--wildcard-access-url).",
			h.dashboard("")})
		return nil
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "same-origin" && !isNavigation(r) {
		// A sandboxed page is a foreign origin to this host. A same-origin request therefore comes from the dashboard,
		// which must never be tricked into loading a workspace's file as its own.
		return fault.New(fault.Forbidden, "A page of the dashboard cannot use an app's files.")
	}
	if h.away() && p.token == "" && carriesCode(r) {
		token, err := h.redeem(w, r, Exchange{Place: p.place, ByPath: true})
		if err != nil {
			return err
		}
		base := p.base + "/"
		if token != "" {
			base += "~" + token.Reveal() + "/"
		}
		redirect(w, r, base+query(withoutParams(r.URL.RawQuery), p.rest))
		return nil
	}
	answer, err := h.opts.Judge.Decide(r, Question{Place: p.place, ByPath: true, Proof: h.pathProof(r, p)})
	if err != nil {
		return err
	}
	if answer.App == nil {
		switch {
		case answer.SignedIn:
			h.write(w, r, pageNotFound(h.dashboard("")))
			return nil
		case !isNavigation(r):
			return fault.New(fault.Unauthenticated, "You are not signed in, or this app's address has expired.").
				WithDetail("Open it from the dashboard.")
		case p.token != "":
			redirect(w, r, p.base+"/"+query(r.URL.RawQuery, p.rest)) // the session decides
		case h.away():
			h.signIn(w, r, h.opts.URL.Scheme+"://"+h.opts.URL.Host)
		default:
			redirect(w, r, "/login?"+url.Values{"redirect": {p.base + "/" + query(r.URL.RawQuery, p.rest)}}.Encode())
		}
		return nil
	}
	a := answer.App
	if h.hosts.suffix != "" && a.Unusable == "" {
		label := a.Place.Label()
		if len(label) > maxLabel {
			h.write(w, r, page{http.StatusNotFound, "This app's name is too long for a host",
				"The names of app, agent, workspace and owner can have 57 characters in total. Rename the workspace.",
				h.dashboard("")})
			return nil
		}
		redirect(w, r, h.hosts.origin(label)+"/"+query(withoutParams(r.URL.RawQuery), p.rest))
		return nil
	}
	switch {
	case answer.By == ByDashboard && isNavigation(r):
		redirect(w, r, p.base+"/~"+answer.Token.Reveal()+"/"+query(withoutParams(r.URL.RawQuery), p.rest))
		return nil
	case answer.By == ByDashboard:
		return fault.New(fault.Forbidden, "An app by path must be opened as a page.").
			WithDetail("Open it from the dashboard.")
	case !p.slash || p.token != "" && !strings.Contains(r.URL.EscapedPath(), "/~"+p.token+"/"):
		to := p.base + "/"
		if p.token != "" {
			to += "~" + p.token + "/"
		}
		redirect(w, r, to+query(withoutParams(r.URL.RawQuery), ""))
		return nil
	}
	base := p.base + "/"
	if p.token != "" {
		base += "~" + p.token + "/"
	}
	return h.forward(w, r, answer, mode{path: base, rest: p.rest})
}

// query appends a query to an escaped path.
func query(raw, path string) string {
	path = strings.TrimLeft(path, "/")
	if raw == "" {
		return path
	}
	return path + "?" + raw
}

// pathProof returns what a request for an app's path shows: the app's token in the path, or a session.
func (h *Handler) pathProof(r *http.Request, p pathApp) Proof {
	if p.token != "" {
		return Proof{ByPath, secret.Token(p.token)}
	}
	if h.away() {
		return Proof{} // a session is for the dashboard's host only
	}
	switch token, fromCookie := credential.Of(r); {
	case token == "":
		return Proof{}
	case fromCookie:
		return Proof{Kind: ByDashboard}
	default:
		return Proof{BySession, token}
	}
}
