package apps

import (
	"fmt"
	"html"
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// page is what a person sees instead of an app.
type page struct {
	status      int
	title, text string
	link        string // to the dashboard
}

func pageNotFound(link string) page {
	return page{http.StatusNotFound, "There is no such app", "It does not exist, or you do not have access to it. Its workspace may have been renamed or deleted.", link}
}

// dashboard returns an address on the dashboard.
func (s *Service) dashboard(path string) string {
	return strings.TrimSuffix(s.opts.AccessURL.String(), "/") + "/" + strings.TrimPrefix(path, "/")
}

// path returns the workspace's path in the dashboard.
func (a app) path() string { return "@" + a.owner + "/" + a.place.workspace }

const pageText = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>%s</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1.5rem }
h1 { font-size: 1.25rem }
</style>
<h1>%s</h1>
<p>%s</p>
<p><a href="%s">To the dashboard</a></p>
</html>
`

// pagePolicy lets this server's own page show itself and nothing else.
const pagePolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// write answers people with a page, and programs with JSON.
func (s *Service) write(w http.ResponseWriter, r *http.Request, p page) {
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	httpapi.NoStore(h)
	if !strings.Contains(r.Header.Get("Accept"), "text/html") {
		if err := httpapi.Write(w, p.status, sdk.Response{Message: p.title + ".", Detail: p.text}); err != nil {
			s.log.Debug("cannot send response", "err", err)
		}
		return
	}
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(p.status)
	title := html.EscapeString(p.title)
	if _, err := fmt.Fprintf(w, pageText, title, title, html.EscapeString(p.text), html.EscapeString(p.link)); err != nil {
		s.log.Debug("cannot send page", "err", err)
	}
}

// fail answers with an error. Errors that no person can act on are logged, under an id.
func (s *Service) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.As(err)
	if f == nil || f.Code == fault.Internal {
		id := uuid.NewString()
		s.log.Error("app request", "request", id, "method", r.Method, "host", r.Host, "err", err)
		f = fault.New(fault.Internal, "The server could not handle this request.").WithDetail("Its log has the cause under request %s.", id)
	}
	status := f.Code.HTTPStatus()
	if f.Code == fault.Unavailable {
		status = http.StatusBadGateway
	}
	link := s.dashboard("")
	if to, ok := r.Context().Value(routeKey{}).(route); ok {
		link = s.dashboard(to.app.path())
	}
	s.write(w, r, page{status, strings.TrimSuffix(f.Message, "."), f.Detail, link})
}
