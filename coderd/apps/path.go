package apps

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
)

// Apps by path share the dashboard's host, so they must not share its origin: their pages are sandboxed. A browser gives a
// sandboxed page a unique origin: the page reads no cookie, stores nothing, and its requests carry no session. To let the
// page's own files and requests through anyway, the server redirects the visitor to an address that contains a token, which
// works for this one app:
//
//	/@ann/dev.main/apps/code/            with the session ──▶ /@ann/dev.main/apps/code/~<token>/
//	/@ann/dev.main/apps/code/~<token>/…  proxied, sandboxed
//
// Programs that need cookies, storage or service workers do not work this way and need their own host; if the server has
// hosts for apps, addresses by path only redirect there.

// sandbox lists what a page may do in addition to running scripts in its own origin. It must never have allow-same-origin.
const sandbox = "sandbox allow-downloads allow-forms allow-modals allow-pointer-lock allow-popups allow-popups-to-escape-sandbox allow-scripts"

func (s *Service) servePath(w http.ResponseWriter, r *http.Request, p pathApp) {
	if err := s.visitPath(w, r, p); err != nil {
		s.fail(w, r, err)
	}
}

func (s *Service) visitPath(w http.ResponseWriter, r *http.Request, p pathApp) error {
	if s.opts.NoPaths && s.hosts.suffix == "" {
		s.write(w, r, page{http.StatusNotFound, "Apps by path are turned off", "The server runs with --disable-path-apps and without a host for apps (--wildcard-access-url).", s.dashboard("")})
		return nil
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site == "same-origin" && !isNavigation(r) {
		// A sandboxed page is a foreign origin to this host. A same-origin request therefore comes from the dashboard, which
		// must never be tricked into loading a workspace's file as its own.
		return fault.New(fault.Forbidden, "A page of the dashboard cannot use an app's files.")
	}
	target, err := s.resolve(r.Context(), p.place)
	if err != nil {
		return err
	}
	who, err := s.pathVisitor(r, p, target)
	if err != nil {
		return err
	}
	switch {
	case target.ok && who.may(target.app):
	case who.actor.KeyID != "":
		s.write(w, r, pageNotFound(s.dashboard("")))
		return nil
	case !isNavigation(r):
		return fault.New(fault.Unauthenticated, "You are not signed in, or this app's address has expired.").WithDetail("Open it from the dashboard.")
	case p.token != "":
		redirect(w, r, p.base+"/"+query(r.URL.RawQuery, p.rest)) // the session decides
		return nil
	default:
		redirect(w, r, "/login?"+url.Values{"redirect": {p.base + "/" + query(r.URL.RawQuery, p.rest)}}.Encode())
		return nil
	}
	a := target.app
	if s.hosts.suffix != "" && a.unusable == "" {
		label := a.label()
		if len(label) > maxLabel {
			s.write(w, r, page{http.StatusNotFound, "This app's name is too long for a host",
				"The names of app, agent, workspace and owner can have 57 characters in total. Rename the workspace.", s.dashboard("")})
			return nil
		}
		redirect(w, r, s.hosts.origin(label)+"/"+query(withoutParams(r.URL.RawQuery), p.rest))
		return nil
	}
	switch {
	case who.means == byCookie && isNavigation(r):
		token, err := s.opts.Sealer.Seal(purposePath, claims{User: who.actor.UserID, Key: who.actor.KeyID, Scope: pathScope(a), Issued: time.Now().Unix()}, pathLifetime)
		if err != nil {
			return err
		}
		redirect(w, r, p.base+"/~"+token.Reveal()+"/"+query(withoutParams(r.URL.RawQuery), p.rest))
		return nil
	case who.means == byCookie:
		return fault.New(fault.Forbidden, "An app by path must be opened as a page.").WithDetail("Open it from the dashboard.")
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
	return s.forward(w, r, who, a, mode{path: base, rest: p.rest})
}

func pathScope(a app) string { return a.agentID.String() + "/" + a.slug }

// query appends a query to an escaped path.
func query(raw, path string) string {
	path = strings.TrimLeft(path, "/")
	if raw == "" {
		return path
	}
	return path + "?" + raw
}

// pathVisitor returns the visitor at an app's path: with the app's token in the path, or with a session.
func (s *Service) pathVisitor(r *http.Request, p pathApp, target found) (visitor, error) {
	if p.token != "" {
		c, ok := s.claimsIn(purposePath, p.token, pathScope(target.app))
		if !ok || !target.ok {
			return visitor{}, nil
		}
		return s.visitorOf(r.Context(), c, byPath)
	}
	actor, err := s.opts.Accounts.Authenticate(r)
	if fault.CodeOf(err) == fault.Unauthenticated {
		return visitor{}, nil
	}
	means := byHeader
	if _, fromCookie := httpapi.Token(r); fromCookie {
		means = byCookie
	}
	return visitor{actor: actor, means: means}, err
}
