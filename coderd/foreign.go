package coderd

import (
	"net/http"
	"path"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/site"
)

// foreignRoutes answers what programs made for other servers of this API ask for, and this server does not have.
// Without these routes they would tell their users to look for a newer server.
func (s *Server) foreignRoutes() {
	// Clients ask these at every start, and show an error without an answer.
	s.Mux.Handle("GET /api/v2/tasks", rbac.AnyToken, listTasks)
	s.Mux.Handle("GET /api/v2/licenses", rbac.AnyToken, listLicenses)
	s.Mux.Handle("GET /api/v2/experiments/available", rbac.AnyToken, listAvailableExperiments)
	s.Mux.Handle("GET /api/v2/updatecheck", rbac.AnyToken, checkForUpdates)
	for pattern, why := range s.foreignRefusals() {
		answer := func(http.ResponseWriter, *http.Request) error {
			return &fault.Error{Code: fault.NotFound, Message: why.message, Detail: why.detail}
		}
		var opts []httpapi.RouteOption
		if !strings.HasPrefix(pattern, "GET ") {
			opts = append(opts, audit.Exempt("it is always refused"))
		}
		s.Mux.Handle(pattern, rbac.AnyToken, answer, opts...)
	}
}

func listTasks(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.TasksResponse{})
}

func listLicenses(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.List[any]{})
}

func listAvailableExperiments(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.AvailableExperiments{})
}

func checkForUpdates(w http.ResponseWriter, _ *http.Request) error {
	return httpapi.Write(w, http.StatusOK, sdk.UpdateCheck{
		Current: true, Version: buildinfo.Version(), URL: sdk.ProjectURL,
	})
}

// absent says why the API has no routes of a family that other servers of this API have.
func (s *Server) absent(asked string) *fault.Error {
	for _, family := range []struct {
		prefixes []string
		refusal
	}{
		{[]string{"/api/v2/ai-gateway", "/api/v2/aibridge", "/api/v2/ai", "/api/v2/aiproviders"},
			refusal{
				"This server has no AI gateway: it does not relay requests to language models.",
				"Programs in workspaces call their provider themselves.",
			}},
		{[]string{"/api/v2/chats", "/api/experimental/chats", "/api/experimental/mcp", "/api/v2/mcp"},
			refusal{"This server has neither AI chats nor an MCP server.", "Programs in workspaces bring their own."}},
		{[]string{"/api/v2/tasks", "/api/experimental/tasks"}, refusal{"This server has no tasks.", "Create a workspace instead: coder create"}},
		{[]string{"/api/v2/templatebuilder", "/api/experimental/templatebuilder"},
			refusal{"This server has no template builder.", "Begin with a starter: coder templates init"}},
		{[]string{"/api/v2/oauth2-provider", "/api/v2/oauth2"}, refusal{"This server does not sign users in to other programs.", "Give the program a token: coder tokens create"}},
		{[]string{"/api/v2/workspaceagents/me"},
			refusal{"Agents of this server use its own program.", "The template's init_script downloads it from " + s.opts.AccessURL.String() + "/bin."}},
		{[]string{"/api/experimental"}, refusal{"This server has no experimental features.", "Its API is described at " + s.opts.AccessURL.String() + "/swagger."}},
	} {
		for _, prefix := range family.prefixes {
			if asked == prefix || strings.HasPrefix(asked, prefix+"/") {
				return &fault.Error{Code: fault.NotFound, Message: family.message, Detail: family.detail}
			}
		}
	}
	return nil
}

// docsPages are our pages about the subjects of Coder's documentation, by how the paths there begin, in part or whole.
var docsPages = map[string]string{
	"about": "", "admin/external-auth": "external-auth", "admin/groups": "groups", "admin/infrastructure": "sizing", "admin/integrations": "observability",
	"admin/licensing": "", "admin/monitoring": "observability", "admin/monitoring/health-check": "troubleshooting", "admin/monitoring/notifications": "notifications",
	"admin/networking": "connecting", "admin/networking/port-forwarding": "apps", "admin/networking/workspace-proxies": "operating",
	"admin/provisioners": "provisioners", "admin/security": "security", "admin/security/audit-logs": "audit", "admin/security/database-encryption": "keys",
	"admin/security/secrets": "secrets", "admin/setup": "operating", "admin/templates": "templates-reference",
	"admin/templates/extending-templates/external-auth": "external-auth", "admin/templates/extending-templates/prebuilt-workspaces": "prebuilds",
	"admin/templates/extending-templates/resource-persistence": "provisioners", "admin/templates/managing-templates/schedule": "schedules",
	"admin/users": "sign-in", "admin/users/groups-roles": "roles", "admin/users/headless-auth": "tokens", "admin/users/organizations": "organizations",
	"admin/users/quotas": "groups", "admin/users/sessions-tokens": "tokens", "cli": "api", "ides": "connecting", "install": "install",
	"install/offline": "offline", "install/upgrade": "upgrading", "networking": "connecting", "reference/api": "api", "reference/cli": "api", "secrets": "secrets",
	"start": "team", "templates": "templates-reference", "templates/resource-persistence": "provisioners", "tutorials": "team",
	"user-guides": "connecting", "user-guides/shared-workspaces": "sharing", "user-guides/workspace-access/web-ides": "apps",
	"user-guides/workspace-scheduling": "schedules", "workspaces": "connecting",
}

// foreignDocs leads links to pages of Coder's documentation, which its command line makes of docs_url, to the pages
// here about the same.
func foreignDocs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/docs/")
		if !ok || !strings.Contains(rest, "/") || site.IsPage(r.URL.Path) || path.Ext(rest) != "" {
			next.ServeHTTP(w, r)
			return
		}
		for at := strings.Trim(rest, "/"); at != "."; at = path.Dir(at) {
			if page, known := docsPages[at]; known {
				http.Redirect(w, r, strings.TrimSuffix("/docs/"+page, "/"), http.StatusFound)
				return
			}
		}
		http.Redirect(w, r, "/docs", http.StatusFound)
	})
}

type refusal struct{ message, detail string }

func (s *Server) foreignRefusals() map[string]refusal {
	binaries := s.opts.AccessURL.String() + "/bin/coder-<os>-<arch>"
	connect := refusal{"Connecting to a workspace requires this server's own CLI.", "Download it from " + binaries + " and use it instead."}
	provisioner := refusal{
		"Provisioners of this server use its own program.",
		"Download it from " + s.opts.AccessURL.String() + "/bin and run: coder provisioner start",
	}
	license := refusal{"This server needs no license: every feature that it has is enabled.", ""}
	task := refusal{"This server has no tasks.", "Create a workspace instead: coder create"}
	mesh := refusal{
		"This server's mesh has no such debug page.", "Read the peers and their paths instead: GET /api/v2/mesh/peers",
	}
	reports := refusal{
		"This server collects no reports of content security policies: its pages do not ask browsers to send any.", "",
	}
	push := refusal{
		"This server sends no messages to browsers that are closed.",
		"Notifications arrive in the inbox, by mail and at webhooks: GET /api/v2/notifications/dispatch-methods",
	}
	return map[string]refusal{
		"GET /api/v2/workspaceagents/{workspaceagent}/coordinate":           connect,
		"GET /api/v2/workspaceagents/connection":                            connect,
		"GET /api/v2/derp-map":                                              connect,
		"GET /api/v2/tailnet":                                               connect,
		"GET /api/v2/organizations/{organization}/provisionerdaemons/serve": provisioner,
		"POST /api/v2/licenses":                                             license,
		"DELETE /api/v2/licenses/{id}":                                      license,
		"POST /api/v2/licenses/refresh-entitlements":                        license,
		"POST /api/v2/users/{user}/webpush/subscription":                    push,
		"DELETE /api/v2/users/{user}/webpush/subscription":                  push,
		"POST /api/v2/users/{user}/webpush/test":                            push,
		"GET /api/v2/debug/derp/traffic":                                    mesh,
		"POST /api/v2/tasks/{user}":                                         task,
		"GET /api/v2/tasks/{user}/{task}":                                   task,
		"DELETE /api/v2/tasks/{user}/{task}":                                task,
		"GET /api/v2/debug/coordinator":                                     mesh,
		"GET /api/v2/debug/tailnet":                                         mesh,
		"GET /api/v2/csp/reports":                                           reports,
		"POST /api/v2/csp/reports":                                          reports,
		"GET /api/v2/workspace-quota/{user}":                                {"Each organization has quotas of its own.", "Use GET /api/v2/organizations/{organization}/members/{user}/workspace-quota."},
		"GET /api/v2/workspaceagents/{workspaceagent}/startup-logs":         {"Scripts and other sources share one log.", "Use GET /api/v2/workspaceagents/{workspaceagent}/logs."},
		"POST /api/v2/audit/testgenerate":                                   {"The audit log has only what has happened.", ""},
		"GET /api/v2/templateversions/{templateversion}/schema":             {"Template versions have no schema.", "Read the Terraform variables: GET /api/v2/templateversions/{templateversion}/variables"},
		"GET /api/v2/provisionerkeys/{key}":                                 {"Provisioner keys are never read by their secret: secrets do not belong in URLs.", "Provisioners of this server use its own program: coder provisioner start"},
		"GET /api/v2/oauth2-provider/apps":                                  {"This server does not sign users in to other programs.", ""},
		"GET /api/v2/aibridge/interceptions":                                {"This server does not relay requests to language models.", ""},
	}
}
