package client

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/codermesh/codermesh/v2/tailnet"
)

// errReplaced ends connections to a server that another one has replaced.
var errReplaced = errors.New("another server has taken its place")

// DialServer blocks until a server is introduced, and connects to it with dial. A killed server sends no goodbye, and
// its successor is another node. When the successor is introduced, DialServer cancels a dial in progress and dials the
// successor, or closes the open connection, so that the caller does not wait for the dead server. It fails if dial
// fails, or ctx or the client ends.
func (c *Client) DialServer(
	ctx context.Context, dial func(context.Context, tailnet.NodeInfo) (net.Conn, error),
) (net.Conn, error) {
	for {
		conn, err := c.dialServer(ctx, dial)
		if !errors.Is(err, errReplaced) || ctx.Err() != nil {
			return conn, err
		}
	}
}

// dialServer is DialServer for one server. The error is errReplaced if another one has replaced it.
func (c *Client) dialServer(
	ctx context.Context, dial func(context.Context, tailnet.NodeInfo) (net.Conn, error),
) (net.Conn, error) {
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

// Reconnected blocks until the next welcome. It fails if ctx or the client ends first.
func (c *Client) Reconnected(ctx context.Context) error {
	c.mu.Lock()
	before := c.welcomes
	c.mu.Unlock()
	return c.await(ctx, "wait for the coordinator", func() (bool, error) { return c.welcomes != before, nil })
}
