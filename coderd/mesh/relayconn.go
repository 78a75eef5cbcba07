package mesh

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
)

// relayConn carries what two relays say in the messages of a connection between servers. One goroutine at a time may
// read, and one write. Past a deadline the connection is closed, because half a message is lost then.
type relayConn struct {
	conn        *cipherConn
	message     []byte // the latest one that was read
	rest        []byte // what Read has not returned of it
	read, write expiry
}

func newRelayConn(conn *cipherConn) *relayConn {
	c := &relayConn{conn: conn}
	c.read.conn, c.write.conn = conn, conn
	return c
}

func (c *relayConn) Read(b []byte) (n int, err error) {
	for len(c.rest) == 0 {
		if c.message, err = c.conn.ReadInto(context.Background(), c.message); err != nil {
			return 0, c.read.explain(err)
		}
		c.rest = c.message
	}
	n = copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *relayConn) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), protocol.MaxLinkMessage)]
		if err := c.conn.Write(context.Background(), part); err != nil {
			return n, c.write.explain(err)
		}
		n, b = n+len(part), b[len(part):]
	}
	return n, nil
}

func (c *relayConn) Close() error {
	c.read.set(time.Time{})
	c.write.set(time.Time{})
	return c.conn.CloseNow()
}

func (c *relayConn) SetDeadline(t time.Time) error {
	c.read.set(t)
	c.write.set(t)
	return nil
}

func (c *relayConn) SetReadDeadline(t time.Time) error {
	c.read.set(t)
	return nil
}

func (c *relayConn) SetWriteDeadline(t time.Time) error {
	c.write.set(t)
	return nil
}

// LocalAddr returns no address: what lies between the servers is the web's business.
func (c *relayConn) LocalAddr() net.Addr { return &net.TCPAddr{} }

// RemoteAddr is like LocalAddr.
func (c *relayConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

// expiry ends a connection at a deadline.
type expiry struct {
	conn *cipherConn

	mu     sync.Mutex
	timer  *time.Timer
	passed bool
}

func (e *expiry) set(t time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.IsZero() && e.timer != nil:
		e.timer.Stop()
	case t.IsZero():
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(t), e.expire)
	default:
		e.timer.Reset(time.Until(t))
	}
}

func (e *expiry) expire() {
	e.mu.Lock()
	e.passed = true
	e.mu.Unlock()
	e.conn.CloseNow()
}

// explain returns os.ErrDeadlineExceeded for an error after the deadline.
func (e *expiry) explain(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.passed {
		return os.ErrDeadlineExceeded
	}
	return err
}
