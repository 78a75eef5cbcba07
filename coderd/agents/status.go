package agents

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// shown is an agent with what the database says of it: the functions agent_status and agent_problem (migration 103)
// define both.
type shown = dbsqlc.ListAgentsOfResourcesRow

// What agent_problem returns, and contested, which the coordinator knows.
const (
	problemOff          = "off"
	problemStartup      = "startup"
	problemTimeout      = "timeout"
	problemContested    = "contested"
	problemDisconnected = "disconnected"
	problemScripts      = "scripts"
	problemShutdown     = "shutdown"
)

// health returns the diagnosis of an agent: whether a person has to act, why, and what to do. scripts are the agent's;
// contested means that another process has its token.
func health(a shown, scripts []dbsqlc.WorkspaceAgentScript, accessURL string, contested bool) sdk.AgentHealth {
	problem := a.Problem
	if contested && problem != problemOff && problem != problemStartup && problem != problemTimeout {
		problem = problemContested
	}
	var reason, remedy string
	switch problem {
	case "":
	case problemOff:
		reason, remedy = "agent is not running", "Restart the workspace."
	case problemStartup:
		reason = a.WorkspaceAgent.StartupProblem // it says what to do
	case problemTimeout:
		if a.WorkspaceAgent.External {
			reason = "agent has not been started on its machine"
			remedy = "Run the command from coder external-workspaces agent-instructions there."
			break
		}
		reason = fmt.Sprintf("agent has not connected within %d s, and its start script has reported nothing",
			a.WorkspaceAgent.ConnectionTimeoutSeconds)
		remedy = "Check that the image has curl, wget or busybox, trusts the server's certificate, has the right time, " +
			"and can reach " + accessURL + " (DNS, firewall, proxy)."
	case problemContested:
		reason = "two agents use this token: a second process, for example in a copy of the workspace, " +
			"tries to connect and is refused"
		remedy = "Stop one of them."
	case problemDisconnected:
		reason = "agent has lost connection"
		remedy = "If only its network has failed, what runs there goes on, and it reconnects on its own. Check that its " +
			"machine runs and can reach " + accessURL + " before you restart the workspace, which ends what runs there."
	case problemScripts:
		reason = failedScripts(scripts)
		remedy = "Read the startup log, correct the script or its parameters in the template, and restart the " +
			"workspace."
	case problemShutdown:
		reason = "agent is shutting down"
	default: // a newer server's, during an upgrade
		reason = fmt.Sprintf("agent is not healthy (%s)", problem)
	}
	return sdk.AgentHealth{Healthy: reason == "", Reason: reason, Remedy: remedy}
}

// failedScripts says which startup scripts failed, and how.
func failedScripts(scripts []dbsqlc.WorkspaceAgentScript) string {
	var failed []string
	for _, s := range scripts {
		name := cmp.Or(s.DisplayName, "script")
		switch {
		case !s.RunOnStart || s.EndedAt == nil:
		case s.TimedOut:
			failed = append(failed, fmt.Sprintf("%q exceeded its time limit of %d s", name, s.TimeoutSeconds))
		case s.ExitCode != nil && *s.ExitCode != 0:
			failed = append(failed, fmt.Sprintf("%q exited with code %d", name, *s.ExitCode))
		}
	}
	switch len(failed) {
	case 0: // the agent ended while they ran, or has not reported how they ended
		return "a startup script failed or was interrupted"
	case 1:
		return "a startup script failed: " + failed[0]
	}
	return fmt.Sprintf("%d startup scripts failed: %s", len(failed), strings.Join(failed, ", "))
}
