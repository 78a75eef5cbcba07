// Package target reaches a workspace's agent: it reads names, starts a stopped workspace, waits for an introduction,
// and reports why a connection has ended. It must not know what is done over its connections, nor the global flags.
package target

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/exit"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/follow"
	"github.com/codermesh/codermesh/v2/cmd/coder/cli/output"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/shell"
	"github.com/codermesh/codermesh/v2/internal/tty"
	"github.com/codermesh/codermesh/v2/meshclient"
)

const (
	// PollInterval is the interval between two checks of an agent that is being waited for.
	PollInterval = 200 * time.Millisecond
	// patience is how long the user waits before the program explains why.
	patience = time.Second
)

// Target is an agent that can be dialled.
type Target struct {
	Workspace sdk.Workspace
	Agent     sdk.WorkspaceAgent
	Client    *sdk.Client // does not wait for the database: what it is asked for runs beside the session, and shows what it waits for
	Mesh      *meshclient.Client
	// NoticeEvery is as in Options.
	NoticeEvery time.Duration
}

// Options define whom to reach, and what the target may do for that.
type Options struct {
	Client    *sdk.Client
	Streams   *tty.Streams // shows the waiting
	Logger    *slog.Logger // of the node
	RelayOnly bool         // no direct paths
	Verbose   bool         // show the debug lines of builds
	Name      Name
	Autostart bool            // start a workspace that is stopped
	Reason    sdk.BuildReason // the reason of that start
	// NoticeEvery is how long a session may go on without asking whether its workspace is going to stop. 0 means the
	// constant of that name.
	NoticeEvery time.Duration
}

// Join starts to join the mesh with the client's session.
func Join(opts Options) *meshclient.Client {
	return meshclient.Start(meshclient.Options{
		URL: opts.Client.URL(), Header: opts.Client.Header(), HTTPClient: opts.Client.HTTP(), TLS: opts.Client.TLS(),
		RelayOnly: opts.RelayOnly, Agent: opts.Name.String(), Logger: opts.Logger,
	})
}

// Reach joins the mesh and finds the agent concurrently, and returns when the agent can be dialled. The caller must
// close the target's mesh.
func Reach(ctx context.Context, opts Options) (_ *Target, err error) {
	mesh := Join(opts)
	defer func() {
		if err != nil {
			mesh.Close()
		}
	}()
	ws, err := findRunning(ctx, opts)
	if err != nil {
		return nil, err
	}
	agent, err := ChooseAgent(ws, opts.Name.Agent)
	if err != nil {
		return nil, err
	}
	t := &Target{
		Workspace: ws, Agent: agent, Client: opts.Client.AtOnce(), Mesh: mesh, NoticeEvery: opts.NoticeEvery,
	}
	if err := introduce(ctx, t, opts.Streams); err != nil {
		return nil, err
	}
	return t, nil
}

// findRunning finds the workspace, and starts it if it is stopped and opts.Autostart is set. It follows a build that is
// under way to its end, unless the workspace can be used before that.
func findRunning(ctx context.Context, opts Options) (sdk.Workspace, error) {
	client, follow := opts.Client, follow.Follower{Client: opts.Client, Streams: opts.Streams, Verbose: opts.Verbose}
	ws, err := client.WorkspaceByName(ctx, opts.Name.Owner, opts.Name.Name)
	if err != nil && fault.CodeOf(err) == fault.NotFound {
		return ws, exit.Try(fault.New(fault.NotFound, "workspace %s not found, or you do not have access to it",
			opts.Name), "coder list")
	}
	if err != nil {
		return ws, err
	}
	if ws.LatestBuild.Given() {
		return ws, nil
	}
	if ws, err = follow.Settle(ctx, ws); err != nil {
		return ws, err
	}
	if ws.Running() {
		return ws, nil
	}
	switch {
	case ws.LatestBuild.Transition == sdk.TransitionDelete && ws.LatestBuild.Status == sdk.WorkspaceDeleted:
		return ws, exit.Try(fault.New(fault.NotFound, "the workspace %s has been deleted", ws.FullName()),
			"coder create %s", shell.Word(ws.Name))
	case !ws.Stopped():
		return ws, exit.Try(fault.New(fault.Conflict, "the workspace %s is %s: its last build did not succeed",
			ws.FullName(), ws.LatestBuild.Status),
			"coder start %s", shell.Word(ws.FullName()))
	case !opts.Autostart:
		state := "stopped"
		if ws.DormantAt != nil {
			state = "dormant"
		}
		return ws, exit.Try(fault.New(fault.Conflict, "the workspace %s is %s", ws.FullName(), state), "coder start %s",
			shell.Word(ws.FullName()))
	}
	if ws.DormantAt != nil {
		fmt.Fprintf(opts.Streams.Err, "The workspace %s is dormant. Waking it.\n", ws.FullName())
		if err := client.UpdateDormancy(ctx, ws.ID, sdk.UpdateDormancyRequest{}); err != nil {
			return ws, err
		}
	}
	fmt.Fprintf(opts.Streams.Err, "The workspace %s is stopped. Starting it.\n", ws.FullName())
	build, err := client.CreateBuild(ctx, ws.ID, sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, Reason: opts.Reason,
	})
	if err != nil {
		return ws, exit.Try(err, "coder start %s", shell.Word(ws.FullName()))
	}
	if err := follow.Build(ctx, ws, build); err != nil {
		return ws, err
	}
	return client.Workspace(ctx, ws.ID)
}

// introduce waits until the target's agent can be dialled. If that takes long it shows the user why.
func introduce(ctx context.Context, t *Target, streams *tty.Streams) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := explainWait(ctx, t, streams); err != nil {
			cancel(err)
		}
	}()
	err := t.Mesh.Introduce(ctx, t.Agent.ID)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	cancel(nil)
	<-done
	return err
}

// explainWait shows what the target's agent is doing, once patience is over, until ctx ends. It returns an error if
// waiting is in vain.
func explainWait(ctx context.Context, t *Target, streams *tty.Streams) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-timer.C:
	}
	p := streams.Progress()
	defer p.Stop(true)
	tick := time.NewTicker(PollInterval)
	defer tick.Stop()
	for {
		ws, err := t.Client.Workspace(ctx, t.Workspace.ID)
		switch {
		case err != nil && fault.CodeOf(err) == fault.Unavailable:
			p.Stage("Waiting for the server")
		case err != nil:
			return err
		case ws.LatestBuild.ID != t.Workspace.LatestBuild.ID && ws.LatestBuild.Transition != sdk.TransitionStart:
			return gone(ws)
		default:
			showAgent(p, ws, t.Agent.ID, func() string { return t.unlinked(ctx) })
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// unlinked says which two servers have no link although the agent and this command need it. It returns "" if that is
// not the reason to wait.
func (t *Target) unlinked(ctx context.Context) string {
	c, err := t.Client.AgentConnection(ctx, t.Agent.ID)
	if err != nil || c.UnreachableServer == uuid.Nil {
		return "" // the workspace's state says why
	}
	return fmt.Sprintf("the server %s, which answers this command, cannot reach the server %s, which the agent is connected to",
		ShortID(c.Server), ShortID(c.UnreachableServer))
}

// showAgent describes the state of the agent. unlinked returns what keeps a connected agent from being introduced,
// or "".
func showAgent(p *tty.Progress, ws sdk.Workspace, id uuid.UUID, unlinked func() string) {
	for _, agent := range ws.LatestBuild.Agents() {
		if agent.ID != id {
			continue
		}
		switch agent.Status {
		case sdk.AgentConnected:
			p.Stage("Waiting for an introduction to the agent " + agent.Name)
			if why := unlinked(); why != "" {
				p.Note(why)
			}
		case sdk.AgentDisconnected:
			p.Stage("Waiting for agent " + agent.Name + ", which lost its connection " + output.AgoPtr(agent.DisconnectedAt))
		case sdk.AgentTimeout:
			p.Stage("Waiting for agent " + agent.Name + " (past its timeout)")
			note := agent.Health.String()
			if agent.TroubleshootingURL != "" {
				note += " See " + agent.TroubleshootingURL
			}
			p.Note(note)
		default:
			p.Stage("Waiting for agent " + agent.Name + " to connect")
		}
	}
}

// gone returns the error for a workspace that is being stopped or deleted, or has been.
func gone(ws sdk.Workspace) error {
	why := ""
	switch ws.LatestBuild.Reason {
	case sdk.ReasonAutostop:
		why = " by its schedule"
	case sdk.ReasonDormancy, sdk.ReasonAutoDelete:
		why = " because it was not used"
	default:
		if ws.LatestBuild.InitiatorName != "" {
			why = " by " + ws.LatestBuild.InitiatorName
		}
	}
	verb, code := "stopped", fault.Unavailable
	if ws.LatestBuild.Transition == sdk.TransitionDelete {
		verb, code = "deleted", fault.NotFound
	}
	return exit.Try(fault.New(code, "the workspace %s was %s%s", ws.FullName(), verb, why), "coder show %s",
		shell.Word(ws.FullName()))
}

// WhyLost asks the server why a connection to the target's agent may have ended. It returns fallback if the server
// knows no reason, or cannot be reached.
func (t *Target) WhyLost(ctx context.Context, fallback error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	ws, err := t.Client.Workspace(ctx, t.Workspace.ID)
	switch {
	case fault.CodeOf(err) == fault.Unauthenticated:
		return t.signedOut()
	case err != nil:
		return fallback
	}
	if ws.LatestBuild.Transition != sdk.TransitionStart {
		return gone(ws)
	}
	if ws.LatestBuild.ID != t.Workspace.LatestBuild.ID {
		return restarted(ws)
	}
	for _, agent := range ws.LatestBuild.Agents() {
		if agent.ID == t.Agent.ID && agent.Status == sdk.AgentDisconnected {
			return exit.Try(fault.New(fault.Unavailable, "the agent of %s lost its connection %s", ws.FullName(),
				output.AgoPtr(agent.DisconnectedAt)),
				"coder logs %s", shell.Word(ws.FullName()))
		}
	}
	return fallback
}
