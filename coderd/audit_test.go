package coderd_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/region"
)

// unaudited are the mutating routes that leave no row in the audit log, on purpose. Their reasons stand where they are registered.
var unaudited = []string{
	"POST /api/v2/authcheck", "POST /api/v2/webhooks/{webhook}/test",
	"POST /api/v2/notifications/custom", "POST /api/v2/notifications/test",
	"POST /api/v2/templateversions/{templateversion}/dynamic-parameters/evaluate",
	"POST /api/v2/applications/reconnecting-pty-signed-token",
	"POST /api/v2/users/otp/request", "POST /api/v2/users/oidc/backchannel-logout",
	"POST /api/v2/users/login/device", "POST /api/v2/users/{user}/keys/codes", "POST /api/v2/users/validate-password",
	"POST /api/v2/licenses", "DELETE /api/v2/licenses/{id}", "POST /api/v2/licenses/refresh-entitlements", "POST /api/v2/audit/testgenerate",
	"POST /api/v2/users/{user}/webpush/subscription", "DELETE /api/v2/users/{user}/webpush/subscription", "POST /api/v2/users/{user}/webpush/test", "POST /api/v2/tasks/{user}", "DELETE /api/v2/tasks/{user}/{task}",
	"POST /api/v2/csp/reports",
	"POST /api/v2/users/{user}/convert-login",
	"POST /api/v2/workspaceagents/aws-instance-identity", "POST /api/v2/workspaceagents/azure-instance-identity", "POST /api/v2/workspaceagents/google-instance-identity",
	"POST /api/v2/workspaceagents/me/startup-problem", "POST /api/v2/workspaceagents/me/log-source", "PATCH /api/v2/workspaceagents/me/logs",
	"POST /api/v2/workspaceproxies/me/app-codes", "POST /api/v2/workspaceproxies/me/visits",
	"POST " + region.SSHKeyPath, "POST " + region.SSHVisitPath, "POST " + region.SSHStartPath, "POST " + region.SSHHostKeyPath,
	"POST " + region.WireGuardKeyPath, "POST " + region.DevicesPath, "POST " + region.DeviceNamesPath, "POST " + region.SightingsPath,
	"POST " + region.DeviceVisitsPath,
	"POST /api/v2/workspaces/{workspace}/usage",
	"PUT /api/v2/workspaceagents/{workspaceagent}/files/content", "PUT /api/v2/workspaceagents/{workspaceagent}/files/folder",
	"PATCH /api/v2/workspaceagents/{workspaceagent}/files", "DELETE /api/v2/workspaceagents/{workspaceagent}/files",
	"PUT /api/v2/notifications/inbox/mark-all-as-read", "PUT /api/v2/notifications/inbox/{notification}/read-status",
}

// TestMutatingRoutesAreAudited holds that no route changes something without saying what it leaves in the audit log. That its handler then
// does so is held by StrictAudit in every other test.
func TestMutatingRoutesAreAudited(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	exempt := map[string]bool{}
	audited := 0
	for _, route := range s.Mux.Routes() {
		switch {
		case route.Audit.Exempt != "":
			exempt[route.Pattern] = true
		case route.Audit.Declared():
			audited++
		case route.Mutates():
			t.Errorf("%s declares neither audit.On nor audit.Exempt: see docs/audit.md", route.Pattern)
		}
	}
	if got := slices.Sorted(maps.Keys(exempt)); !slices.Equal(got, slices.Sorted(slices.Values(unaudited))) {
		t.Errorf("routes without a row in the audit log:\ngot  %q\nwant %q", got, unaudited)
	}
	if audited < 30 {
		t.Errorf("only %d routes declare their event", audited)
	}
}
