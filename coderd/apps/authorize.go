package apps

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/clientaddr"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// authorize gives the browser of a signed-in user a code for an app's address, and sends it there. It redirects only to
// addresses of apps, at this server or a connected region proxy, and only if the visitor may see the app.
func (s *Service) authorize(w http.ResponseWriter, r *http.Request) error {
	back, err := url.Parse(r.URL.Query().Get("redirect_uri"))
	state := r.URL.Query().Get("state")
	if err != nil || len(state) != appproxy.StateLength {
		return errNoAppAddress()
	}
	at, p, byPath, err := s.locate(r.Context(), back)
	if err != nil {
		return err
	}
	actor, err := s.opts.Accounts.Authenticate(r)
	if fault.CodeOf(err) == fault.Unauthenticated {
		redirect(w, r, "/login?"+url.Values{"redirect": {r.URL.RequestURI()}}.Encode())
		return nil
	}
	if err != nil {
		return err
	}
	to, err := s.resolve(r.Context(), p)
	if err != nil {
		return err
	}
	if who := (visitor{actor: actor}); !to.ok || !who.may(to.target) {
		s.refused(who, to, clientaddr.Of(r), r.UserAgent(), "")
		s.proxy.NotFound(w, r)
		return nil
	}
	code, err := s.opts.Signer.Sign(purposeCode, claims{
		User: actor.UserID, Key: actor.KeyID, Scope: at.scope(p, byPath, to), State: state, Issued: time.Now().Unix(),
		Nonce: secret.Text(8),
	}, codeLifetime)
	if err != nil {
		return err
	}
	redirect(w, r, appproxy.WithCode(back, code))
	return nil
}

// locate returns where and what an address of an app is. This server gives codes for apps' hosts only: at its own host
// there is a session.
func (s *Service) locate(ctx context.Context, back *url.URL) (site, appproxy.Place, bool, error) {
	if p, byPath, ok := s.hosts.Find(back); ok {
		if byPath {
			return "", p, false, errNoAppAddress()
		}
		return "", p, false, nil
	}
	sites, err := s.opts.Regions.Sites(ctx)
	if err != nil {
		return "", appproxy.Place{}, false, err
	}
	for _, at := range sites {
		if strings.EqualFold(at.URL.Host, s.opts.AccessURL.Host) {
			continue
		}
		if p, byPath, ok := appproxy.NewHosts(at.URL, at.WildcardHost).Find(back); ok {
			return siteOf(at.Proxy), p, byPath, nil
		}
	}
	return "", appproxy.Place{}, false, errNoAppAddress()
}

func errNoAppAddress() error {
	return fault.New(fault.Invalid, "This is not the address of an app of this server.")
}

func redirect(w http.ResponseWriter, r *http.Request, to string) {
	httpapi.NoStore(w.Header())
	w.Header().Set("Referrer-Policy", "no-referrer") // addresses contain codes
	http.Redirect(w, r, to, http.StatusSeeOther)
}
