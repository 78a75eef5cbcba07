package target

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Redialer dials a target that may be replaced: a workspace that restarts gets a new agent. It is safe for concurrent
// use.
type Redialer struct {
	mu    sync.Mutex // guards the fields below
	t     *Target    // nil while the workspace is not running
	conns map[*redialerConn]struct{}
}

var errNotRunning = errors.New("the workspace is not running")

// NewRedialer returns a Redialer that dials t until Run replaces it.
func NewRedialer(t *Target) *Redialer { return &Redialer{t: t, conns: map[*redialerConn]struct{}{}} }

// Dial connects to a port of the current target. It fails while the workspace is not running.
func (r *Redialer) Dial(ctx context.Context, network string, port uint16) (net.Conn, error) {
	r.mu.Lock()
	t := r.t
	r.mu.Unlock()
	if t == nil {
		return nil, errNotRunning
	}
	conn, err := t.Mesh.Dial(ctx, network, t.Agent.ID, port)
	if err != nil {
		return nil, err
	}
	c := &redialerConn{Conn: conn, owner: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t != t {
		conn.Close()
		return nil, errNotRunning
	}
	r.conns[c] = struct{}{}
	return c, nil
}

// CloseAll closes every connection and forgets the target, which no longer exists.
func (r *Redialer) CloseAll() {
	r.mu.Lock()
	conns := r.conns
	r.t, r.conns = nil, map[*redialerConn]struct{}{}
	r.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

func (r *Redialer) set(t *Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.t = t
}

// redialerConn is a connection that its Redialer may close.
type redialerConn struct {
	net.Conn
	owner *Redialer
}

func (c *redialerConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.conns, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends the sending side, if the transport supports it.
func (c *redialerConn) CloseWrite() error { return netio.CloseWrite(c.Conn) }

// Run replaces the target whenever its workspace has been started again. It blocks until ctx ends and then returns nil;
// it returns an error if the workspace is deleted or the session is over. note receives messages for the user.
func (r *Redialer) Run(ctx context.Context, name Name, note func(string)) error {
	t := r.t
	for {
		why := t.Watch(ctx, note)
		if why == nil {
			return nil // ctx has ended
		}
		r.CloseAll()
		if code := fault.CodeOf(why); code == fault.NotFound || code == fault.Unauthenticated {
			return why
		}
		note(fmt.Sprintf("%v; the ports wait until it is running again", why))
		next, err := t.next(ctx, name)
		if err != nil || next == nil {
			return err
		}
		t = next
		r.set(t)
		note(t.Workspace.FullName() + " is running again")
	}
}

// next blocks until the workspace is running and its agent can be dialled. It returns nil if ctx ends.
func (t *Target) next(ctx context.Context, name Name) (*Target, error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		next, err := t.now(ctx, name)
		if next != nil || err != nil && ctx.Err() == nil {
			return next, err
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-tick.C:
		}
	}
}

// now returns the current target, nil if it cannot be dialled yet, or an error if it never will be.
func (t *Target) now(ctx context.Context, name Name) (*Target, error) {
	ws, err := t.Client.Workspace(ctx, t.Workspace.ID)
	switch {
	case err != nil && fault.CodeOf(err) == fault.Unavailable:
		return nil, nil
	case err != nil:
		return nil, err
	case ws.LatestBuild.Transition == sdk.TransitionDelete:
		return nil, gone(ws)
	case !ws.Running():
		return nil, nil
	}
	agent, err := ChooseAgent(ws, name.Agent)
	if err != nil {
		return nil, err
	}
	next := &Target{Workspace: ws, Agent: agent, Client: t.Client, Mesh: t.Mesh}
	// Bounded, so that a stop in the meantime is noticed.
	ctx, cancel := context.WithTimeout(ctx, introducePatience)
	defer cancel()
	if err := t.Mesh.Introduce(ctx, agent.ID); err != nil {
		if code := fault.CodeOf(err); ctx.Err() == nil && code != fault.Unavailable && code != fault.Internal {
			return nil, err
		}
		return nil, nil
	}
	return next, nil
}

const introducePatience = 15 * time.Second
