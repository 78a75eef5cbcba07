package coderd

import (
	"net/http"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// foreignRoutes answers what programs made for other servers of this API ask for, and this server does not have. Without these routes
// they would tell their users to look for a newer server.
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
	return httpapi.Write(w, http.StatusOK, sdk.UpdateCheck{Current: true, Version: buildinfo.Version(), URL: sdk.ProjectURL})
}

type refusal struct{ message, detail string }

func (s *Server) foreignRefusals() map[string]refusal {
	binaries := s.opts.AccessURL.String() + "/bin/coder-<os>-<arch>"
	connect := refusal{"Connecting to a workspace requires this server's own CLI.", "Download it from " + binaries + " and use it instead."}
	agent := refusal{"Agents of this server use its own program.", "The template's init_script downloads it from " + binaries + "."}
	provisioner := refusal{"Provisioners of this server use its own program.", "Download it from " + s.opts.AccessURL.String() + "/bin and run: coder provisioner start"}
	license := refusal{"This server needs no license: every feature that it has is enabled.", ""}
	task := refusal{"This server has no tasks.", "Create a workspace instead: coder create"}
	mesh := refusal{"This server's mesh has no such debug page.", "Read the peers and their paths instead: GET /api/v2/mesh/peers"}
	reports := refusal{"This server collects no reports of content security policies: its pages do not ask browsers to send any.", ""}
	push := refusal{"This server sends no messages to browsers that are closed.", "Notifications arrive in the inbox, by mail and at webhooks: GET /api/v2/notifications/dispatch-methods"}
	device := refusal{"Accounts are linked in the browser only.", "Open " + s.opts.AccessURL.String() + "/external-auth/<id> and link the account there."}
	return map[string]refusal{
		"GET /api/v2/workspaceagents/{workspaceagent}/coordinate":               connect,
		"GET /api/v2/workspaceagents/connection":                                connect,
		"GET /api/v2/derp-map":                                                  connect,
		"GET /api/v2/tailnet":                                                   connect,
		"GET /api/v2/workspaceagents/me/rpc":                                    agent,
		"GET /api/v2/organizations/{organization}/provisionerdaemons/serve":     provisioner,
		"POST /api/v2/licenses":                                                 license,
		"DELETE /api/v2/licenses/{id}":                                          license,
		"POST /api/v2/licenses/refresh-entitlements":                            license,
		"POST /api/v2/users/{user}/webpush/subscription":                        push,
		"DELETE /api/v2/users/{user}/webpush/subscription":                      push,
		"POST /api/v2/users/{user}/webpush/test":                                push,
		"GET /api/v2/debug/derp/traffic":                                        mesh,
		"POST /api/v2/tasks/{user}":                                             task,
		"GET /api/v2/tasks/{user}/{task}":                                       task,
		"DELETE /api/v2/tasks/{user}/{task}":                                    task,
		"GET /api/v2/debug/coordinator":                                         mesh,
		"GET /api/v2/debug/tailnet":                                             mesh,
		"GET /api/v2/csp/reports":                                               reports,
		"POST /api/v2/csp/reports":                                              reports,
		"GET /api/v2/external-auth/{externalauth}/device":                       device,
		"POST /api/v2/external-auth/{externalauth}/device":                      device,
		"GET /api/v2/workspace-quota/{user}":                                    {"Each organization has quotas of its own.", "Use GET /api/v2/organizations/{organization}/members/{user}/workspace-quota."},
		"GET /api/v2/workspaceagents/{workspaceagent}/startup-logs":             {"Scripts and other sources share one log.", "Use GET /api/v2/workspaceagents/{workspaceagent}/logs."},
		"POST /api/v2/templates/{template}/prebuilds/invalidate":                {"Prebuilt workspaces are replaced when the template has a new active version.", "Upload its source again: coder templates push"},
		"POST /api/v2/audit/testgenerate":                                       {"The audit log has only what has happened.", ""},
		"PUT /api/v2/debug/health/settings":                                     {"Health checks cannot be dismissed.", "Remove the cause: the report says how."},
		"GET /api/v2/insights/user-latency":                                     {"Latencies are not stored, so there is no report of a period.", "Read the present ones: GET /api/v2/mesh/peers, or the metric coderd_agents_connection_latencies_seconds."},
		"GET /api/v2/insights/user-status-counts":                               {"The number of users by status is not stored.", "The audit log has each change: GET /api/v2/audit?q=resource_type:user"},
		"PATCH /api/v2/organizations/{organization}/settings/workspace-sharing": {"Owners may always share their workspaces: this cannot be turned off.", ""},
		"GET /api/v2/templateversions/{templateversion}/schema":                 {"Template versions have no schema.", "Read the Terraform variables: GET /api/v2/templateversions/{templateversion}/variables"},
		"GET /api/v2/provisionerkeys/{key}":                                     {"Provisioner keys are never read by their secret: an address is no place for one.", "Provisioners of this server use its own program: coder provisioner start"},
		"GET /api/v2/oauth2-provider/apps":                                      {"This server does not sign users in to other programs.", ""},
		"GET /api/v2/aibridge/interceptions":                                    {"This server does not relay requests to language models.", ""},
	}
}
