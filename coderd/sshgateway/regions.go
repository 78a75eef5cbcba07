package sshgateway

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// agentPatience is how long an agent may take to connect after the start of its workspace has ended.
const agentPatience = 2 * time.Minute

// wake starts the visitor's workspace of a name, and calls open until that succeeds, the start fails, its agent does not come, or ctx ends.
func (g *Gateway) wake(ctx context.Context, v visitor, name string, say func(string), open func() error) error {
	actor, err := g.actor(ctx, v)
	if err != nil {
		return err
	}
	build, err := g.opts.Workspaces.Wake(ctx, actor, agentName(name))
	if err != nil {
		return err
	}
	say(fmt.Sprintf("Starting the workspace %q …", short(name)))
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: time.Second}
	var ended time.Time // when the start was seen to have ended
	for {
		if err := retry.Wait(ctx); err != nil {
			return err
		}
		done, err := g.opts.Workspaces.Started(ctx, build)
		if err != nil {
			return err
		}
		if err = open(); err == nil {
			return nil
		}
		if done && ended.IsZero() {
			ended = time.Now()
			say("The workspace has started. Waiting for its agent …")
		}
		switch code := fault.CodeOf(err); {
		case code != fault.NotFound && code != fault.Unavailable && code != fault.Conflict, done && code == fault.NotFound:
			return err // it has no agent of that name, for example
		case done && time.Since(ended) > agentPatience:
			return fault.New(fault.Unavailable, "The workspace has started, but its agent does not connect.").WithDetail("Its log may say why: coder logs %s", shell.POSIX(agentName(name)))
		}
	}
}

// awaitScripts returns when no start script of an agent blocks logins any more. waited reports whether one did.
func (g *Gateway) awaitScripts(ctx context.Context, agent uuid.UUID, say func(string)) (waited bool, err error) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: time.Second}
	for {
		blocked, err := g.opts.Agents.LoginBlocked(ctx, agent)
		if err != nil || !blocked {
			return waited, err
		}
		if !waited {
			waited = true
			say("Waiting for the start scripts that block logins …")
		}
		if err := retry.Wait(ctx); err != nil {
			return waited, err
		}
	}
}
