package coordinator

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/codermesh/codermesh/tailnet"
)

// errReplaced ends what was opened to a server that another one has replaced.
var errReplaced = errors.New("another server has taken its place")

// DialServer blocks until a server is introduced and connects to it with dial. A killed server says no goodbye, and the one
// started after it is another node: when that one is introduced, a dial in progress is canceled and an open connection is
// closed, so that the caller does not wait for the first one. An error means that dial failed, the server was replaced, or ctx
// or the client ended.
func (c *Client) DialServer(ctx context.Context, dial func(context.Context, tailnet.NodeInfo) (net.Conn, error)) (net.Conn, error) {
	server, err := c.Server(ctx)
	if err != nil {
		return nil, err
	}
	dialling, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched, stop := context.WithCancel(context.WithoutCancel(ctx)) // the connection outlives ctx
	s := &serverConn{stop: stop, done: make(chan struct{})}
	open := make(chan struct{}) // closed when s.Conn is set
	go func() {
		defer close(s.done)
		if c.Replaced(watched, server.ID) != nil {
			return
		}
		cancel(errReplaced)
		select {
		case <-open:
			s.Conn.Close() // readers see the error
		case <-watched.Done():
		}
	}()
	conn, err := dial(dialling, server)
	if err != nil {
		stop()
		<-s.done
		return nil, cmp.Or(context.Cause(dialling), err)
	}
	s.Conn = conn
	close(open)
	return s, nil
}

// serverConn is a connection that ends when its server is replaced.
type serverConn struct {
	net.Conn
	stop context.CancelFunc
	done chan struct{} // closed when the server is no longer watched
}

func (c *serverConn) Close() error {
	c.stop()
	err := c.Conn.Close()
	<-c.done
	return err
}

// Reconnected blocks until the next welcome. An error means that ctx or the client ended first.
func (c *Client) Reconnected(ctx context.Context) error {
	c.mu.Lock()
	before := c.welcomes
	c.mu.Unlock()
	return c.await(ctx, "wait for the coordinator", func() (bool, error) { return c.welcomes != before, nil })
}
