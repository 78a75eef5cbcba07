package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	const url = "https://coder.example.com"
	now := time.Now()
	code := func(n int32) *int32 { return &n }
	done := func(name string, exit int32) dbsqlc.WorkspaceAgentScript {
		return dbsqlc.WorkspaceAgentScript{DisplayName: name, RunOnStart: true, EndedAt: &now, ExitCode: code(exit)}
	}
	late := done("Wait", -1)
	late.TimedOut, late.TimeoutSeconds = true, 30
	stop := done("Stop", 9)
	stop.RunOnStart = false
	running := done("Run", 0)
	running.EndedAt, running.ExitCode = nil, nil
	for _, tt := range []struct {
		name           string
		status         sdk.AgentStatus
		lifecycle      sdk.AgentLifecycle
		problem        string
		scripts        []dbsqlc.WorkspaceAgentScript
		contested      bool
		reason, remedy string // the remedy begins with it
	}{
		{name: "ready", status: sdk.AgentConnected, lifecycle: sdk.LifecycleReady, scripts: []dbsqlc.WorkspaceAgentScript{done("Install", 0), stop}},
		{name: "one failed", status: sdk.AgentConnected, lifecycle: sdk.LifecycleStartError, scripts: []dbsqlc.WorkspaceAgentScript{done("Install", 3), done("Clone", 0), stop, running},
			reason: `a startup script failed: "Install" exited with code 3`, remedy: "Read the startup log"},
		{name: "two failed", status: sdk.AgentConnected, lifecycle: sdk.LifecycleStartTimeout, scripts: []dbsqlc.WorkspaceAgentScript{done("", 1), late},
			reason: `2 startup scripts failed: "script" exited with code 1, "Wait" exceeded its time limit of 30 s`, remedy: "Read the startup log"},
		{name: "interrupted", status: sdk.AgentConnected, lifecycle: sdk.LifecycleStartError, scripts: []dbsqlc.WorkspaceAgentScript{running},
			reason: "a startup script failed or was interrupted", remedy: "Read the startup log"},
		{name: "never connected", status: sdk.AgentTimeout, lifecycle: sdk.LifecycleCreated,
			reason: "agent has not connected within 120 s, and its start script has reported nothing", remedy: "Check that the image has curl"},
		{name: "reported", status: sdk.AgentTimeout, lifecycle: sdk.LifecycleCreated, problem: "install curl in this workspace", reason: "install curl in this workspace"},
		{name: "gone", status: sdk.AgentDisconnected, lifecycle: sdk.LifecycleReady, reason: "agent has lost connection", remedy: "It reconnects on its own"},
		{name: "contested", status: sdk.AgentConnected, lifecycle: sdk.LifecycleReady, contested: true,
			reason: "two agents use this token: a second process, for example in a copy of the workspace, tries to connect and is refused", remedy: "Stop one of them."},
		{name: "off", status: sdk.AgentDisconnected, lifecycle: sdk.LifecycleOff, reason: "agent is not running", remedy: "Restart the workspace."},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := dbsqlc.WorkspaceAgent{LifecycleState: string(tt.lifecycle), StartupProblem: tt.problem, ConnectionTimeoutSeconds: 120}
			got := health(tt.status, a, tt.scripts, url, tt.contested)
			if got.Healthy != (tt.reason == "") || got.Reason != tt.reason || !strings.HasPrefix(got.Remedy, tt.remedy) || (got.Remedy == "") != (tt.remedy == "") {
				t.Errorf("health: %+v, want %q and %q", got, tt.reason, tt.remedy)
			}
		})
	}
}
