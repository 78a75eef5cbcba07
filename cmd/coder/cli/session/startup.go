package session

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/target"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

// WaitStartup waits for the agent's startup scripts. mode is yes, no, or auto, which waits for those that block logins.
func (s *Session) WaitStartup(ctx context.Context, mode string) error {
	t := s.Target
	if mode == "auto" && t.Agent.LifecycleState == sdk.LifecycleCreated {
		// The build may not have described the agent completely when the workspace was read.
		agent, err := t.Client.Agent(ctx, t.Agent.ID)
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		if err == nil {
			t.Agent = agent
		}
	}
	if mode != "yes" && (mode != "auto" || !t.Agent.BlocksLogin()) {
		return nil
	}
	p := s.Streams.Progress()
	ok := false
	defer func() { p.Stop(ok) }()
	tick := time.NewTicker(target.PollInterval)
	defer tick.Stop()
	agent := t.Agent
	var shown int64
	// The state that came with the workspace may be older than the agent's connection.
	started := func() bool {
		if mode == "auto" {
			return agent.Status == sdk.AgentConnected && !agent.BlocksLogin()
		}
		return agent.Status == sdk.AgentConnected && !agent.LifecycleState.Starting()
	}
	for !started() {
		p.Stage("Waiting for the startup scripts (--wait=no skips this)")
		lines, err := t.Client.AgentLogs(ctx, agent.ID, shown)
		for _, line := range lines {
			shown = max(shown, line.ID)
			p.Line(s.Streams.Dim(line.Output))
		}
		if err == nil {
			agent, err = t.Client.Agent(ctx, agent.ID)
		}
		if err != nil && fault.CodeOf(err) != fault.Unavailable {
			return err
		}
		if err == nil && agent.LifecycleState.ShuttingDown() {
			return t.WhyLost(ctx,
				fault.New(fault.Unavailable, "the workspace %s is shutting down", t.Workspace.FullName()))
		}
		if started() {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	ok = agent.LifecycleState == sdk.LifecycleReady || agent.LifecycleState == sdk.LifecycleStarting
	switch agent.LifecycleState {
	case sdk.LifecycleStartError, sdk.LifecycleStartTimeout:
		fmt.Fprintf(s.Streams.Err, "The workspace may be incomplete: %s. See: coder logs %s\n",
			tty.Clean(agent.Health.Reason), shell.Word(t.Workspace.FullName()))
	}
	return nil
}
