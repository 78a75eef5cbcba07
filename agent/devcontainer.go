package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/devcontainer"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

const (
	// lookAgain is how often the agent looks whether a stopped dev container was started by hand.
	lookAgain = 10 * time.Second
	// subagentStable is how long the agent in a container must run to be restarted without delay.
	subagentStable = time.Minute
	// subagentTries is how often in a row it may end sooner.
	subagentTries = 5
)

// devContainer is a dev container of the workspace, with the agent in it.
type devContainer struct {
	log     *slog.Logger
	server  *uplink
	url     func() string // of the server, which must work in the container as it does here
	id      uuid.UUID
	spec    devcontainer.Spec
	host    devcontainer.Host
	out     *logship.Writer
	changes chan agentpb.ChangeDevcontainerRequest_Change // capacity 1

	found devcontainer.Container // owned by run, and by stop once that has returned
}

// run starts the container, and again whenever that is asked for or another program has done it, until ctx ends.
func (c *devContainer) run(ctx context.Context) {
	fresh := false
	for ctx.Err() == nil {
		life, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- c.live(life, fresh) }()
		var change agentpb.ChangeDevcontainerRequest_Change
		select {
		case err := <-ended:
			end()
			if ctx.Err() == nil {
				change = c.rest(ctx, err)
			}
		case change = <-c.changes:
			end()
			if err := <-ended; err != nil {
				c.log.Debug("interrupted dev container", "err", err)
			}
		}
		for change == agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE {
			change = c.rest(ctx, c.remove(ctx))
		}
		fresh = change == agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE
	}
}

// live starts the container and keeps an agent running in it. It returns nil once the container does not run any more.
func (c *devContainer) live(ctx context.Context, fresh bool) error {
	if err := c.report(ctx, agentpb.DevcontainerStateRequest_STATE_STARTING, ""); err != nil {
		return err
	}
	c.spec.Fresh = fresh
	found, err := c.host.Up(ctx, c.spec)
	if err != nil {
		return err
	}
	c.found = found
	pause, failures := backoff.Backoff{Min: time.Second, Max: time.Minute}, 0
	for {
		token, err := c.admit(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		err = c.host.RunAgent(ctx, c.found, devcontainer.Agent{URL: c.url(), Token: token})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		now, inspectErr := c.host.Inspect(ctx, c.found.ID)
		if inspectErr != nil {
			return inspectErr
		}
		if !now.Running {
			if now.ID == "" {
				c.found = devcontainer.Container{}
			}
			return nil
		}
		if err == nil {
			err = errors.New("exit status 0")
		}
		if failures++; time.Since(began) >= subagentStable {
			pause.Reset()
			failures = 1
		}
		if failures == subagentTries {
			return fmt.Errorf("the agent in the container has ended %d times: %w", failures, err)
		}
		c.say("The agent in the container has ended (%v) and is started again.", err)
		if err := c.report(ctx, agentpb.DevcontainerStateRequest_STATE_STARTING, ""); err != nil {
			return err
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// admit puts this program into the container, where it runs as an agent of its own, and returns the token that the
// server makes for it.
func (c *devContainer) admit(ctx context.Context) (token secret.Token, err error) {
	program, err := os.Open("/proc/self/exe") // also after an upgrade has replaced the file
	if err != nil {
		return "", fmt.Errorf("open own program: %w", err)
	}
	defer program.Close()
	if err := c.host.Install(ctx, c.found.ID, program); err != nil {
		return "", err
	}
	err = c.server.retry(ctx, func(ctx context.Context, server agentpbconnect.AgentServiceClient) error {
		answer, err := server.AdmitSubagent(ctx,
			connect.NewRequest(&agentpb.AdmitSubagentRequest{DevcontainerId: c.id[:], Directory: c.found.Directory}))
		if err == nil {
			token = secret.Token(answer.Msg.GetToken())
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return token, c.report(ctx, agentpb.DevcontainerStateRequest_STATE_RUNNING, "")
}

// rest reports that the container does not run, because of err if that is not nil, and waits for a change. Without one
// it returns when the container runs again.
func (c *devContainer) rest(ctx context.Context, err error) agentpb.ChangeDevcontainerRequest_Change {
	state, problem := agentpb.DevcontainerStateRequest_STATE_STOPPED, ""
	if err != nil {
		state, problem = agentpb.DevcontainerStateRequest_STATE_ERROR, err.Error()
		c.say("The dev container cannot be started: %v", err)
	} else {
		c.say("The dev container has stopped.")
	}
	if err := c.report(ctx, state, problem); err != nil {
		c.log.Warn("cannot report state of dev container", "err", err)
	}
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case change := <-c.changes:
			return change
		case <-ctx.Done():
			return agentpb.ChangeDevcontainerRequest_CHANGE_UNSPECIFIED
		case <-tick.C:
		}
		if err != nil || c.found.ID == "" {
			continue
		}
		// An engine that does not answer now may do so later.
		if now, err := c.host.Inspect(ctx, c.found.ID); err == nil && now.Running {
			return agentpb.ChangeDevcontainerRequest_CHANGE_UNSPECIFIED
		}
	}
}

// remove removes the container.
func (c *devContainer) remove(ctx context.Context) error {
	if c.found.ID == "" {
		return nil
	}
	if err := c.host.Remove(ctx, c.found.ID); err != nil {
		return err
	}
	c.found = devcontainer.Container{}
	return nil
}

func (c *devContainer) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if _, err := fmt.Fprintln(c.out, text); err != nil {
		c.log.Warn("cannot write log of dev container", "err", err)
	}
}

// report tells the server how the container is. It returns once the server has stored that: what follows must not
// overtake it.
func (c *devContainer) report(ctx context.Context, state agentpb.DevcontainerStateRequest_State, problem string) error {
	return c.server.retry(ctx, func(ctx context.Context, server agentpbconnect.AgentServiceClient) error {
		_, err := server.DevcontainerState(ctx, connect.NewRequest(&agentpb.DevcontainerStateRequest{
			DevcontainerId: c.id[:], State: state, Error: problem, ContainerId: c.found.ID, ContainerName: c.found.Name,
			Image: c.found.Image,
		}))
		return err
	})
}

// stop stops the container if it runs. listening is set if the server still accepts reports.
func (c *devContainer) stop(ctx context.Context, listening bool) {
	if c.found.ID == "" { // it was being started
		id, err := c.host.Find(ctx, c.spec.Folder)
		if err != nil {
			c.log.Debug("cannot look for dev container", "err", err)
		}
		c.found.ID = id
	}
	if c.found.ID == "" {
		return
	}
	if err := c.host.Stop(ctx, c.found.ID); err != nil {
		c.say("The dev container cannot be stopped: %v", err)
		return
	}
	if !listening {
		return
	}
	once, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if err := c.report(once, agentpb.DevcontainerStateRequest_STATE_STOPPED, ""); err != nil {
		c.log.Debug("cannot report state of dev container", "err", err)
	}
}
