package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/netio"
	"github.com/codermesh/codermesh/internal/sdk"
)

// lane dials a target that may be replaced: a workspace that was stopped and started again has another agent.
type lane struct {
	mu    sync.Mutex // guards the fields below
	t     *target    // nil while the workspace does not run
	conns map[*laneConn]struct{}
}

var errNotRunning = errors.New("the workspace does not run")

func newLane(t *target) *lane { return &lane{t: t, conns: map[*laneConn]struct{}{}} }

func (l *lane) dial(ctx context.Context, network string, port uint16) (net.Conn, error) {
	l.mu.Lock()
	t := l.t
	l.mu.Unlock()
	if t == nil {
		return nil, errNotRunning
	}
	conn, err := t.mesh.Dial(ctx, network, t.agent.ID, port)
	if err != nil {
		return nil, err
	}
	c := &laneConn{Conn: conn, lane: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.t != t {
		conn.Close()
		return nil, errNotRunning
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// lose ends every connection: their target is gone.
func (l *lane) lose() {
	l.mu.Lock()
	conns := l.conns
	l.t, l.conns = nil, map[*laneConn]struct{}{}
	l.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

func (l *lane) set(t *target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.t = t
}

// laneConn is a connection that its lane may end.
type laneConn struct {
	net.Conn
	lane *lane
}

func (c *laneConn) Close() error {
	c.lane.mu.Lock()
	delete(c.lane.conns, c)
	c.lane.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the sending side, where the transport can.
func (c *laneConn) CloseWrite() error { return netio.CloseWrite(c.Conn) }

// keepLane replaces the lane's target when its workspace was started anew. It returns nil when ctx ends, and an error when the
// workspace is gone for good or the session is over.
func (a *app) keepLane(ctx context.Context, l *lane, name workspaceName) error {
	t := l.t
	for {
		why := t.watch(ctx, func(note string) { fmt.Fprintln(a.streams().Err, note) })
		if ctx.Err() != nil {
			return nil
		}
		l.lose()
		if code := fault.CodeOf(why); code == fault.NotFound || code == fault.Unauthenticated {
			return why
		}
		fmt.Fprintf(a.streams().Err, "%v; the ports wait until it runs again\n", why)
		next, err := a.await(ctx, t, name)
		if err != nil || next == nil {
			return err
		}
		t = next
		l.set(t)
		fmt.Fprintf(a.streams().Err, "%s runs again\n", fullName(t.workspace))
	}
}

// await blocks until the workspace's agent can be dialled in a build that is not stopped. It returns nil when ctx ends.
func (a *app) await(ctx context.Context, old *target, name workspaceName) (*target, error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		t, err := a.again(ctx, old, name)
		if t != nil || err != nil && ctx.Err() == nil {
			return t, err
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-tick.C:
		}
	}
}

// again returns the target as it is now, nil when it cannot be dialled yet, and an error when it never will be.
func (a *app) again(ctx context.Context, old *target, name workspaceName) (*target, error) {
	ws, err := old.client.Workspace(ctx, old.workspace.ID)
	switch {
	case err != nil && fault.CodeOf(err) == fault.Unavailable:
		return nil, nil
	case err != nil:
		return nil, err
	case ws.LatestBuild.Transition == sdk.TransitionDelete:
		return nil, gone(ws)
	case !isRunning(ws):
		return nil, nil
	}
	agent, err := chooseAgent(ws, name.Agent)
	if err != nil {
		return nil, err
	}
	t := &target{workspace: ws, agent: agent, client: old.client, mesh: old.mesh}
	// A stop that comes meanwhile must be seen.
	ctx, cancel := context.WithTimeout(ctx, introducePatience)
	defer cancel()
	if err := t.mesh.Introduce(ctx, agent.ID); err != nil {
		if code := fault.CodeOf(err); ctx.Err() == nil && code != fault.Unavailable && code != fault.Internal {
			return nil, err
		}
		return nil, nil
	}
	return t, nil
}

const introducePatience = 15 * time.Second
