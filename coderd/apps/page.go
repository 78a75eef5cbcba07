package apps

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
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

// write answers people with a page, and programs with JSON.
func (s *Service) write(w http.ResponseWriter, r *http.Request, p page) {
	if err := httpapi.WritePage(w, r, httpapi.Page{Status: p.status, Title: p.title, Text: p.text, Link: p.link, LinkText: "To the dashboard"}); err != nil {
		s.log.Debug("cannot send response", "err", err)
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
