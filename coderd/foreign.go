package coderd

import (
	"net/http"

	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
)

// foreignRoutes answers what programs made for another mesh ask for first. Everything else of theirs works here, so they get this
// far; that the server lacks a route would send their users looking for a newer one.
func (s *Server) foreignRoutes() {
	answer := func(http.ResponseWriter, *http.Request) error {
		return fault.New(fault.NotFound, "Connecting to a workspace requires this server's own CLI.").
			WithDetail("Download it from %s and use it instead.", s.opts.AccessURL.String()+"/bin/coder-<os>-<arch>")
	}
	for _, route := range []string{
		"GET /api/v2/workspaceagents/{workspaceagent}/coordinate",
		"GET /api/v2/workspaceagents/connection", "GET /api/v2/derp-map", "GET /api/v2/tailnet",
	} {
		s.Mux.Handle(route, rbac.SignedIn, httpapi.HandlerFunc(answer))
	}
}
