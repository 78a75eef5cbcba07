package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
)

// waitStartup waits for the agent's startup scripts. mode is yes, no, or auto for what the template says.
func (s *session) waitStartup(ctx context.Context, mode string) error {
	t := s.target
	if mode != "yes" && (mode != "auto" || t.agent.StartupScriptBehavior != sdk.StartupBlocking) {
		return nil
	}
	p := s.streams.Progress()
	ok := false
	defer func() { p.Stop(ok) }()
	tick := time.NewTicker(agentLook)
	defer tick.Stop()
	agent := t.agent
	var shown int64
	for {
		// The state that came with the workspace may be older than the agent's connection.
		if agent.Status == sdk.AgentConnected && !agent.LifecycleState.Starting() {
			break
		}
		p.Stage("Waiting for the startup scripts (--wait=no skips this)")
		lines, err := t.client.AgentLogs(ctx, agent.ID, shown)
		for _, line := range lines {
			shown = max(shown, line.ID)
			p.Line(s.streams.Dim(line.Output))
		}
		if err == nil {
			agent, err = t.client.Agent(ctx, agent.ID)
		}
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		if err == nil && agent.LifecycleState.ShuttingDown() {
			return t.whyLost(ctx, fault.New(fault.Unavailable, "the workspace %s is shutting down", t.workspace.FullName()))
		}
		if agent.Status == sdk.AgentConnected && !agent.LifecycleState.Starting() {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	ok = agent.LifecycleState == sdk.LifecycleReady
	switch agent.LifecycleState {
	case sdk.LifecycleStartError:
		fmt.Fprintf(s.streams.Err, "A startup script failed; the workspace may be incomplete. See: coder logs %s\n", t.workspace.FullName())
	case sdk.LifecycleStartTimeout:
		fmt.Fprintf(s.streams.Err, "A startup script takes longer than its template allows. See: coder logs %s\n", t.workspace.FullName())
	}
	return nil
}
