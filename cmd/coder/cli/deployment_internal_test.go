package cli

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestDeploymentOverview checks what the command prints for people.
func TestDeploymentOverview(t *testing.T) {
	t.Parallel()
	srv := newAPI(t, map[string]any{"GET deployment/overview": sdk.DeploymentOverview{
		Workspaces: sdk.OverviewWorkspaces{Total: 9, Running: 4, Stopped: 2, Building: 1, Pending: 1, Failed: 1, Dormant: 2, Prebuilt: 1},
		Users:      sdk.OverviewUsers{Active: 5, Dormant: 2, Suspended: 1, SeenHour: 3},
		Queue:      sdk.OverviewQueue{Waiting: 2, Running: 1, OldestWaitingSeconds: 75.4, Provisioners: 3},
		Days:       []sdk.OverviewDay{{Date: "2026-05-03", Builds: 10, Failed: 4, Users: 2}, {Date: "2026-05-04", Builds: 3, Failed: 1, Users: 5}},
		Costs: sdk.OverviewCosts{
			DailyCost: 120, Users: []sdk.CostOf{{ID: uuid.New(), Name: "ada", Workspaces: 2, Running: 1, DailyCost: 120}},
		},
		Servers:       []sdk.OverviewServer{{Version: "v2"}, {Version: "v1"}, {Version: "v2"}},
		AgentVersions: []sdk.AgentVersion{{Version: "v2", Agents: 3, Connected: 2}, {Agents: 1}},
	}})
	at := []string{"--url", srv.url, "--token", "t", "deployment"}
	want := `Workspaces  9: 4 running, 2 stopped, 1 building, 1 pending, 1 failed; 2 dormant, 1 prebuilt
Queue       2 waiting (the oldest for 1m15s), 1 running; provisioners: 3
Users       5 active, 2 dormant, 1 suspended; seen within an hour: 3
Today       builds: 3, failed: 1, connected users: 5
2 days      builds: 13, failed: 5
Cost        120 credits a day
Servers     v2 (2), v1 (1)
Agents      v2 (3), not connected yet (1)
`
	if r := run(t, "", "", append(at, "overview")...); r.fault != nil || r.out != want {
		t.Errorf("got %v\n%s\nwant\n%s", r.fault, r.out, want)
	}
	if r := run(t, "", "", append(at, "costs", "--by", "user")...); r.fault != nil || r.out != "NAME  ORGANIZATION  WORKSPACES  RUNNING  DAILY COST\nada                 2           1        120\n" {
		t.Errorf("got %v\n%s", r.fault, r.out)
	}
	if r := run(t, "", "", append(at, "costs", "--by", "group", "-o", "json")...); r.fault != nil || r.out != "[]\n" {
		t.Errorf("got %v\n%s", r.fault, r.out)
	}
	for _, args := range []string{"costs --by planet", "overview -o table"} {
		if r := run(t, "", "", append(at, strings.Fields(args)...)...); fault.CodeOf(r.fault) != fault.Invalid {
			t.Errorf("%s: %v", args, r.fault)
		}
	}
}

// TestDeploymentSettings checks the source of settings, their search, and that a secret is not shown, whatever the server answers.
func TestDeploymentSettings(t *testing.T) {
	t.Parallel()
	option := func(flag, value, source string, secret bool) sdk.DeploymentOption {
		o := sdk.DeploymentOption{Name: "group." + flag, Flag: flag, Env: "CODER_X", Value: value, ValueSource: source}
		if secret {
			o.Annotations = sdk.Map[string]{"secret": "true"}
		}
		return o
	}
	srv := newAPI(t, map[string]any{"GET deployment/config": sdk.DeploymentConfig{Options: []sdk.DeploymentOption{
		option("docs-url", "https://docs.example.com", "env", false), option("trace", "false", "default", false), option("limit", "5", "yaml", false),
		option("scim-auth-header", "hunter2", "flag", true), option("psk", "", "default", true),
	}}})
	at := []string{"--url", srv.url, "--token", "t", "deployment", "settings"}
	for args, want := range map[string]string{
		"":                                  "--docs-url https://docs.example.com environment, --trace false default, --limit 5 file, --scim-auth-header (secret) flag, --psk default",
		"--set":                             "--docs-url https://docs.example.com environment, --limit 5 file, --scim-auth-header (secret) flag",
		"--search ENVIRONMENT":              "--docs-url https://docs.example.com environment",
		"--search group.limit --column key": "group.limit",
		"--search hunter2":                  "",
	} {
		r := run(t, "", "", append(at, strings.Fields(args)...)...)
		var rows []string
		for line := range strings.Lines(r.out) {
			rows = append(rows, strings.Join(strings.Fields(line), " "))
		}
		if r.fault != nil || strings.Join(rows[1:], ", ") != want {
			t.Errorf("%s: %v\n%s\nwant %s", args, r.fault, r.out, want)
		}
	}
}
