package gateway

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/shell"
)

// agentPatience is how long an agent may take to connect after the start of its workspace has ended.
const agentPatience = 2 * time.Minute

// wake starts the visitor's workspace of a name, and calls open until that succeeds, the start fails, its agent does
// not come, or ctx ends.
func wake(ctx context.Context, v Visitor, name string, say func(string), open func() error) error {
	if len(name) > maxName {
		return fault.New(fault.NotFound, "The name is too long.")
	}
	start, err := v.Wake(ctx, agentName(name))
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
		done, err := start.Ended(ctx)
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
		case code != fault.NotFound && code != fault.Unavailable && code != fault.Conflict, done &&
			code == fault.NotFound:
			return err // it has no agent of that name, for example
		case done && time.Since(ended) > agentPatience:
			return fault.New(fault.Unavailable, "The workspace has started, but its agent does not connect.").
				WithDetail("Its log may say why: coder logs %s", shell.POSIX(agentName(name)))
		}
	}
}

// awaitScripts returns when no start script of a session's agent blocks logins any more. waited reports whether one
// did.
func awaitScripts(s Session, say func(string)) (waited bool, err error) {
	retry := backoff.Backoff{Min: 200 * time.Millisecond, Max: time.Second}
	for {
		blocked, err := s.Blocked(s.Context())
		if err != nil || !blocked {
			return waited, err
		}
		if !waited {
			waited = true
			say("Waiting for the start scripts that block logins …")
		}
		if err := retry.Wait(s.Context()); err != nil {
			return waited, err
		}
	}
}
