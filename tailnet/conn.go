package tailnet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

const (
	// maxFlows is how many UDP flows one peer may have open towards this node.
	maxFlows = 256
	// flowIdle is how long an inbound UDP flow may be silent before it is closed: UDP does not signal the end of a
	// flow.
	flowIdle = 2 * time.Minute
)

// trackedConn tracks one connection with a peer.
type trackedConn struct {
	live          *live
	local, remote netip.AddrPort
	localPort     uint16
	udp, inbound  bool

	tcp    engine.Conn // nil for UDP
	eof    atomic.Bool // the peer has closed its side, and nothing was written since
	once   sync.Once
	closer func() error
	err    error
}

// shut closes the write side of a TCP connection and waits for the peer to do the same.
func (c *trackedConn) shut(deadline time.Time) {
	defer c.Close()
	if c.tcp.CloseWrite() != nil || c.tcp.SetReadDeadline(deadline) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, c.tcp) // until the peer closes its side or the deadline passes
}

func (c *trackedConn) Close() error {
	c.once.Do(func() {
		c.err = c.closer()
		c.live.remove(c)
	})
	return c.err
}

// tcpConn is a stream or a TCP connection with a peer. Unlike the stack's own connection, it knows its addresses before
// its handshake is complete, and its remote address is that of the peer whose key carried it.
type tcpConn struct {
	engine.Conn
	track *trackedConn
}

func (c *tcpConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, io.EOF) {
		c.track.eof.Store(true)
	}
	return n, err
}

func (c *tcpConn) Write(b []byte) (int, error) {
	c.track.eof.Store(false)
	return c.Conn.Write(b)
}

func (c *tcpConn) Close() error         { return c.track.Close() }
func (c *tcpConn) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(c.track.local) }
func (c *tcpConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.track.remote) }

// newTCPConn returns nil and closes raw if the peer has been removed in the meantime.
func newTCPConn(raw engine.Conn, l *live, local, remote netip.AddrPort, inbound bool) net.Conn {
	track := &trackedConn{
		live: l, local: local, remote: remote, localPort: local.Port(), inbound: inbound, tcp: raw,
		// Close alone leaves blocked reads blocked; the deadline wakes them.
		closer: func() error {
			_ = raw.SetDeadline(time.Unix(1, 0)) // fails only once it is closed
			return raw.Close()
		},
	}
	if !l.add(track) {
		raw.Close()
		raw.Abort()
		return nil
	}
	return &tcpConn{raw, track}
}

// udpConn is a connected UDP flow with a peer. An inbound one ends after flowIdle of silence in both directions.
type udpConn struct {
	*engine.UDPConn
	track *trackedConn
	idle  *time.Timer // nil for outbound flows
}

func newUDPConn(raw *engine.UDPConn, l *live, local, remote netip.AddrPort, inbound bool) net.Conn {
	c := &udpConn{UDPConn: raw}
	c.track = &trackedConn{live: l, local: local, remote: remote, localPort: local.Port(), udp: true, inbound: inbound}
	c.track.closer = func() error {
		if c.idle != nil {
			c.idle.Stop()
		}
		_ = raw.SetDeadline(time.Unix(1, 0)) // fails only once it is closed
		return raw.Close()
	}
	if inbound {
		c.idle = time.AfterFunc(flowIdle, func() { c.Close() })
	}
	if !l.add(c.track) {
		_ = c.track.closer() // no caller is left to receive the error
		return nil
	}
	return c
}

func (c *udpConn) Close() error         { return c.track.Close() }
func (c *udpConn) LocalAddr() net.Addr  { return net.UDPAddrFromAddrPort(c.track.local) }
func (c *udpConn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.track.remote) }

func (c *udpConn) Read(b []byte) (int, error) {
	n, err := c.UDPConn.Read(b)
	c.touch(err)
	return n, err
}

func (c *udpConn) Write(b []byte) (int, error) {
	n, err := c.UDPConn.Write(b)
	c.touch(err)
	return n, err
}

// touch may re-arm the timer of a closed flow; its Close is then a no-op.
func (c *udpConn) touch(err error) {
	if c.idle != nil && err == nil {
		c.idle.Reset(flowIdle)
	}
}
