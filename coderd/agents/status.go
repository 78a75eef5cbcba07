package agents

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Status returns whether an agent is connected, as of now.
func Status(now time.Time, a dbsqlc.WorkspaceAgent) sdk.AgentStatus {
	switch {
	case a.LastConnectedAt != nil && a.DisconnectedAt == nil && a.AwaitedBuild != nil:
		return sdk.AgentConnecting // it is connected, but not yet its new owner's
	case a.LastConnectedAt != nil && a.DisconnectedAt == nil:
		return sdk.AgentConnected
	case a.FirstConnectedAt != nil:
		return sdk.AgentDisconnected
	case a.ConnectionTimeoutSeconds > 0 && now.Sub(a.CreatedAt) > time.Duration(a.ConnectionTimeoutSeconds)*time.Second:
		return sdk.AgentTimeout
	default:
		return sdk.AgentConnecting
	}
}

// health returns the diagnosis of an agent: whether a person has to act, why, and what to do. scripts are the agent's; contested means that
// another process has its token.
func health(status sdk.AgentStatus, a dbsqlc.WorkspaceAgent, scripts []dbsqlc.WorkspaceAgentScript, accessURL string, contested bool) sdk.AgentHealth {
	lifecycle := sdk.AgentLifecycle(a.LifecycleState)
	var reason, remedy string
	switch {
	case lifecycle == sdk.LifecycleOff && status != sdk.AgentConnected:
		reason, remedy = "agent is not running", "Restart the workspace."
	case status != sdk.AgentConnected && a.StartupProblem != "":
		reason = a.StartupProblem // it says what to do
	case status == sdk.AgentTimeout && a.External:
		reason = "agent has not been started on its machine"
		remedy = "Run the command from coder external-workspaces agent-instructions there."
	case status == sdk.AgentTimeout:
		reason = fmt.Sprintf("agent has not connected within %d s, and its start script has reported nothing", a.ConnectionTimeoutSeconds)
		remedy = "Check that the image has curl, wget or busybox, trusts the server's certificate, has the right time, and can reach " + accessURL +
			" (DNS, firewall, proxy)."
	case contested:
		reason = "two agents use this token: a second process, for example in a copy of the workspace, tries to connect and is refused"
		remedy = "Stop one of them."
	case status == sdk.AgentDisconnected:
		reason = "agent has lost connection"
		remedy = "It reconnects on its own if its machine runs and can reach " + accessURL + ". If it does not, restart the workspace."
	case lifecycle == sdk.LifecycleStartError, lifecycle == sdk.LifecycleStartTimeout:
		reason = failedScripts(scripts)
		remedy = "Read the startup log, correct the script or its parameters in the template, and restart the workspace."
	case lifecycle.ShuttingDown():
		reason = "agent is shutting down"
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
