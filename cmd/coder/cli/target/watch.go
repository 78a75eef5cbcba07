package target

import (
	"context"
	"time"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

const (
	// watchEvery is the interval between two checks that the target's agent is still the one that was dialled. The
	// checks are local.
	watchEvery = time.Second
	// askEvery is the interval between two requests about a workspace whose agent has left the mesh.
	askEvery = 3 * time.Second
)

// Watch blocks until connections to the target's agent have ended for good, and returns the reason: its workspace was
// stopped or deleted, another process is the agent now, or the session is over. It returns nil if ctx ends. It waits
// for an agent that only lost its connection, since sessions resume when it returns; note receives messages for the
// user about that, and about a stop that comes soon.
func (t *Target) Watch(ctx context.Context, note func(string)) error {
	key, known := t.Mesh.Key(t.Agent.ID)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var left, asked time.Time // when the agent was first missed; when the server was last asked
	noted := false
	announced := notices{every: t.NoticeEvery}
	for _, text := range announced.look(t.Workspace, time.Now()) {
		note(text)
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		announced.ask(ctx, t, note)
		now, ok := t.Mesh.Key(t.Agent.ID)
		switch {
		case ok && (!known || now == key):
			key, known = now, true
			left, noted = time.Time{}, false
		case ok:
			return t.WhyLost(ctx,
				exit.Try(fault.New(fault.Unavailable, "the agent of %s was restarted", t.Workspace.FullName()),
					"coder show %s", shell.Word(t.Workspace.FullName())))
		case time.Since(asked) >= askEvery:
			asked = time.Now()
			if left.IsZero() {
				left = asked
			}
			away, err := t.replaced(ctx)
			if err != nil {
				return err
			}
			if away && !noted && time.Since(left) > awayPatience {
				noted = true
				note("The agent of " + t.Workspace.FullName() + " has lost its connection. The session resumes when it is back.")
			}
		}
	}
}

// replaced returns an error if the server has a newer build than the target's. away is set if the server has lost the
// agent, too.
func (t *Target) replaced(ctx context.Context) (away bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	ws, err := t.Client.Workspace(ctx, t.Workspace.ID)
	switch {
	case err != nil && fault.CodeOf(err) == fault.NotFound:
		return false, exit.Try(fault.New(fault.NotFound, "the workspace %s was deleted, or you may no longer see it",
			t.Workspace.FullName()), "coder list")
	case fault.CodeOf(err) == fault.Unauthenticated:
		return false, t.signedOut()
	case err != nil: // the server is unreachable for now
		return false, nil
	case ws.LatestBuild.Transition != sdk.TransitionStart:
		return false, gone(ws)
	case ws.LatestBuild.ID != t.Workspace.LatestBuild.ID:
		return false, restarted(ws)
	}
	for _, agent := range ws.LatestBuild.Agents() {
		away = away || agent.ID == t.Agent.ID && agent.Status == sdk.AgentDisconnected
	}
	return away, nil
}

const (
	askTimeout = 5 * time.Second
	// awayPatience is how long an agent may be unreachable before note reports it to the user.
	awayPatience = 6 * time.Second
)

// signedOut returns the error for a session that is over.
func (t *Target) signedOut() error {
	return exit.Try(fault.New(fault.Unauthenticated, "your session has ended: you signed out elsewhere, or it was revoked"), "coder login %s", shell.Word(t.Client.URL().String()))
}

func restarted(ws sdk.Workspace) error {
	return exit.Try(fault.New(fault.Unavailable, "the workspace %s was restarted", ws.FullName()), "coder ssh %s",
		shell.Word(ws.FullName()))
}
