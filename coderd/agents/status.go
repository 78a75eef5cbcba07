package agents

import (
	"time"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/internal/sdk"
)

// Status returns whether an agent is connected, as of now.
func Status(now time.Time, a dbsqlc.WorkspaceAgent) sdk.AgentStatus {
	switch {
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

// health reports whether a person has to act, and why. contested means that another process has the agent's token.
func health(status sdk.AgentStatus, a dbsqlc.WorkspaceAgent, accessURL string, contested bool) sdk.AgentHealth {
	lifecycle := sdk.AgentLifecycle(a.LifecycleState)
	var reason string
	switch {
	case lifecycle == sdk.LifecycleOff && status != sdk.AgentConnected:
		reason = "agent is not running"
	case status != sdk.AgentConnected && a.StartupProblem != "":
		reason = a.StartupProblem
	case status == sdk.AgentTimeout:
		reason = "agent is taking too long to connect, and its start script has not reported anything. Check that the image has curl, wget or busybox, " +
			"trusts the server's certificate, has the right time, and can reach " + accessURL + " (DNS, firewall, proxy)"
	case contested:
		reason = "two agents use this token: a second process, for example in a copy of the workspace, tries to connect and is refused. Stop one of them"
	case status == sdk.AgentDisconnected:
		reason = "agent has lost connection"
	case lifecycle == sdk.LifecycleStartError:
		reason = "agent startup script exited with an error"
	case lifecycle == sdk.LifecycleStartTimeout:
		reason = "agent startup script is taking too long"
	case lifecycle.ShuttingDown():
		reason = "agent is shutting down"
	}
	return sdk.AgentHealth{Healthy: reason == "", Reason: reason}
}
