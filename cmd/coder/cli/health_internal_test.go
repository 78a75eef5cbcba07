package cli

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestHealth checks that checks are dismissed by both of their names, in one request each, and that a script can tell what
// counts.
func TestHealth(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{
		"GET debug/health": sdk.HealthReport{Healthy: true, Severity: sdk.HealthOK, Sections: []sdk.HealthSection{
			{Name: "database", Healthy: true, Severity: sdk.HealthOK},
			{Name: "relay", Severity: sdk.HealthWarning, Code: "relay_no_stun", Message: "No UDP here.", Dismissed: true},
		}, Servers: []sdk.ServerHealth{
			{Name: "s1"},
			{Name: "s2", Stopping: true},
			{Name: "s3", Stopping: true, Awaits: []sdk.AwaitedJob{
				{Type: sdk.JobWorkspaceBuild, Owner: "ada", Workspace: "dev", Transition: sdk.TransitionStart, Initiator: "bob"},
				{Type: sdk.JobTemplateImport, Template: "docker", Initiator: "tom"},
			}},
		}},
		"PATCH debug/health/settings": sdk.HealthSettings{DismissedHealthchecks: []string{"Database", "WorkspaceProxy"}},
	})
	at := []string{"--url", srv.url, "--token", "t", "health"}
	r := run(t, "", "", append(at, "show")...)
	if lines := strings.Split(r.out, "\n"); r.fault != nil || len(lines) != 4 || !strings.HasPrefix(lines[0], "CHECK") ||
		!strings.HasPrefix(lines[2], "relay     warning   true       No UDP here.") {
		t.Errorf("table: %v\n%s", r.fault, r.out)
	}
	const waits = "The server s2 is stopping. It waits for no build.\n" +
		"The server s3 is stopping. It waits for the start of ada/dev (begun by bob, interrupted in 0s), template version import docker (begun by tom, interrupted in 0s).\n"
	if r.err != waits {
		t.Errorf("got %q about servers, want %q", r.err, waits)
	}
	var report sdk.HealthReport
	r = run(t, "", "", append(at, "show", "-o", "json")...)
	if json.Unmarshal([]byte(r.out), &report) != nil || !report.Healthy || len(report.Sections) != 2 {
		t.Errorf("json: %v\n%s", r.fault, r.out)
	}
	for _, c := range []struct{ args, want string }{
		{"dismiss database", `{"dismiss":["Database"]}`},
		{"dismiss access_url AccessURL", `{"dismiss":["AccessURL","AccessURL"]}`},
		{"undismiss relay", `{"undismiss":["DERP"]}`},
		{"undismiss derp workspaceproxy database", `{"undismiss":["DERP","WorkspaceProxy","Database"]}`},
	} {
		r = run(t, "", "", append(at, strings.Fields(c.args)...)...)
		if want := "PATCH debug/health/settings " + c.want; r.fault != nil || !slices.Contains(srv.calls, want) {
			t.Errorf("%s: %v; calls %q lack %s", c.args, r.fault, srv.calls, want)
		}
		if r.out != "" || r.err != "Dismissed health checks: Database, WorkspaceProxy.\n" {
			t.Errorf("%s: printed %q and %q", c.args, r.out, r.err)
		}
	}
	before := len(srv.calls)
	for _, args := range []string{"dismiss", "undismiss", "dismiss horoscope", "undismiss relay horoscope"} {
		r = run(t, "", "", append(at, strings.Fields(args)...)...)
		if _, ok := exit.Hint(r.fault); fault.CodeOf(r.fault) != fault.Invalid || !ok {
			t.Errorf("%s: got %v", args, r.fault)
		}
	}
	if len(srv.calls) != before {
		t.Errorf("a check that does not exist was sent: %q", srv.calls[before:])
	}
}
