package appproxy

import (
	"net/http"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/webpage"
)

// page is what a person sees instead of an app.
type page struct {
	status      int
	title, text string
	link        string // to the dashboard
}

func pageNotFound(link string) page {
	return page{http.StatusNotFound, "There is no such app",
		"It does not exist, or you do not have access to it. Its workspace may have been renamed or deleted.", link}
}

// dashboard returns an address on the dashboard.
func (h *Handler) dashboard(path string) string {
	return strings.TrimSuffix(h.opts.Dashboard.String(), "/") + "/" + strings.TrimPrefix(path, "/")
}

// NotFound answers a visitor for whom there is no such app.
func (h *Handler) NotFound(w http.ResponseWriter, r *http.Request) {
	h.write(w, r, pageNotFound(h.dashboard("")))
}

// path returns the workspace's path in the dashboard.
func (a App) path() string { return "@" + a.Place.Owner + "/" + a.Place.Workspace }

// write answers people with a page, and programs with JSON.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, p page) {
	if origin := h.reader(r); origin != "" {
		allow(w.Header(), origin)
	}
	if err := webpage.Write(w, r, webpage.Page{Status: p.status, Title: p.title, Text: p.text, Link: p.link,
		LinkText: "To the dashboard"}); err != nil {
		h.log.Debug("cannot send response", "err", err)
	}
}

// reader returns the origin of a page that may read an answer of this server in an app's place: a page of the same
// workspace. A browser would otherwise report an error of CORS, whatever the answer says. It returns "" for everyone
// else.
func (h *Handler) reader(r *http.Request) string {
	label, ok := h.hosts.label(r.Host)
	if !ok {
		return ""
	}
	p, ok := parseLabel(label)
	if !ok {
		return ""
	}
	return h.friend(r, p)
}

// fail answers with an error. Errors that no person can act on are logged, under an id.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := fault.As(err)
	if f == nil || f.Code == fault.Internal {
		id := uuid.NewString()
		h.log.Error("app request", "request", id, "method", r.Method, "host", r.Host, "err", err)
		f = fault.New(fault.Internal, "The server could not handle this request.").
			WithDetail("Its log has the cause under request %s.", id)
	}
	status := f.Code.HTTPStatus()
	if f.Code == fault.Unavailable {
		status = http.StatusBadGateway
	}
	link := h.dashboard("")
	if to, ok := r.Context().Value(routeKey{}).(route); ok {
		link = h.dashboard(to.app.path())
	}
	h.write(w, r, page{status, strings.TrimSuffix(f.Message, "."), f.Detail, link})
}
