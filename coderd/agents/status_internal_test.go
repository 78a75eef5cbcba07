package agents

import (
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
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
		problem        string
		startup        string
		scripts        []dbsqlc.WorkspaceAgentScript
		contested      bool
		reason, remedy string // the remedy begins with it
	}{
		{name: "ready", scripts: []dbsqlc.WorkspaceAgentScript{done("Install", 0), stop}},
		{name: "one failed", problem: problemScripts, scripts: []dbsqlc.WorkspaceAgentScript{done("Install", 3), done("Clone", 0), stop, running},
			reason: `a startup script failed: "Install" exited with code 3`, remedy: "Read the startup log"},
		{name: "two failed", problem: problemScripts, scripts: []dbsqlc.WorkspaceAgentScript{done("", 1), late},
			reason: `2 startup scripts failed: "script" exited with code 1, "Wait" exceeded its time limit of 30 s`, remedy: "Read the startup log"},
		{name: "interrupted", problem: problemScripts, scripts: []dbsqlc.WorkspaceAgentScript{running},
			reason: "a startup script failed or was interrupted", remedy: "Read the startup log"},
		{name: "never connected", problem: problemTimeout,
			reason: "agent has not connected within 120 s, and its start script has reported nothing", remedy: "Check that the image has curl"},
		{name: "reported", problem: problemStartup, startup: "install curl in this workspace", reason: "install curl in this workspace"},
		{name: "gone", problem: problemDisconnected, reason: "agent has lost connection", remedy: "If only its network has failed, what runs there goes on"},
		{name: "contested", contested: true,
			reason: "two agents use this token: a second process, for example in a copy of the workspace, tries to connect and is refused", remedy: "Stop one of them."},
		{name: "off", problem: problemOff, reason: "agent is not running", remedy: "Restart the workspace."},
		{name: "off and contested", problem: problemOff, contested: true, reason: "agent is not running", remedy: "Restart the workspace."},
		{name: "gone and contested", problem: problemDisconnected, contested: true,
			reason: "two agents use this token: a second process, for example in a copy of the workspace, tries to connect and is refused", remedy: "Stop one of them."},
		{name: "shutting down", problem: problemShutdown, reason: "agent is shutting down"},
		{name: "a newer server's", problem: "asleep", reason: "agent is not healthy (asleep)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := shown{Problem: tt.problem}
			a.WorkspaceAgent.StartupProblem, a.WorkspaceAgent.ConnectionTimeoutSeconds = tt.startup, 120
			got := health(a, tt.scripts, url, tt.contested)
			if got.Healthy != (tt.reason == "") || got.Reason != tt.reason || !strings.HasPrefix(got.Remedy, tt.remedy) || (got.Remedy == "") != (tt.remedy == "") {
				t.Errorf("health: %+v, want %q and %q", got, tt.reason, tt.remedy)
			}
		})
	}
}
