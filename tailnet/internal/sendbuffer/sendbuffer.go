// Package sendbuffer fits the send buffer of a TCP connection to its path. Linux grows the buffer with the path, up to
// 4 MiB by default, of which half is data. A connection that carries 200 Mbit/s over 100 ms has 2.5 MB on the way, and
// after a lost packet as much again. What has not been sent yet waits in it in a fixed order, so little of that may be
// there.
//
// It does not change what a program receives: Linux grows receive buffers further.
package sendbuffer

import (
	"net"
	"sync"
	"time"
)

// wanted is the size to ask for, in bytes. Linux doubles it, for its own structures.
const wanted = 4 << 20

const (
	// ahead is how long the path takes to carry what waits in the kernel before writes block. What waits there keeps
	// its order: a program that wants to send something else first must have it still. A program with less in the
	// kernel does not always come in time to fill the path (decision 38).
	ahead = 5 * time.Millisecond
	// leastAhead and mostAhead bound it, in bytes: a write, and what 200 Mbit/s carry.
	leastAhead = 16 << 10
	mostAhead  = 128 << 10
	// measure is over how long a rate is measured at least.
	measure = 20 * time.Millisecond
)

// Fit gives the connection that c runs over a larger send buffer, if the system grants more than it would grow the
// buffer to, and limits how much of it holds what has not been sent yet (on Linux and macOS). The memory is used only
// while data waits in the buffer. Fit looks below TLS. All writes go through the connection that it returns, which is c
// if that does not run over TCP.
func Fit(c net.Conn) net.Conn {
	under := c
	if over, ok := c.(interface{ NetConn() net.Conn }); ok {
		under = over.NetConn()
	}
	tcp, ok := under.(*net.TCPConn)
	if !ok {
		return c
	}
	limitUnsent(tcp, leastAhead)
	if grants() {
		_ = tcp.SetWriteBuffer(wanted) // fails only if the connection has ended
	}
	return &conn{Conn: c, tcp: tcp, limit: leastAhead}
}

// conn learns from how fast writes succeed what its path carries.
type conn struct {
	net.Conn
	tcp *net.TCPConn

	mu    sync.Mutex
	limit int       // of what waits before writes block, in bytes
	since time.Time // when the measurement began
	sent  int       // since then, in bytes
}

// NetConn returns the TCP connection.
func (c *conn) NetConn() net.Conn { return c.tcp }

// Write writes b, and may change how much waits in the kernel before the next write blocks.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wrote(n, time.Now())
	return n, err
}

func (c *conn) wrote(n int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent += n
	took := now.Sub(c.since)
	if took < measure {
		return
	}
	limit := min(max(int(float64(c.sent)*ahead.Seconds()/took.Seconds()), leastAhead), mostAhead)
	c.since, c.sent = now, 0
	if limit > c.limit+c.limit/4 || limit < c.limit-c.limit/4 {
		c.limit = limit
		limitUnsent(c.tcp, limit)
	}
}
