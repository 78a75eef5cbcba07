package tailnet

import (
	"context"
	"net"
	"net/netip"
	"os"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// StreamsVariable is the environment variable that, if set to "off", makes a process use TCP inside the mesh instead of
// streams. Its peers then use TCP with it too. It helps to find out whether streams cause a problem.
const StreamsVariable = "CODER_MESH_STREAMS"

// streamsVersion returns the version of the stream protocol that this node speaks, or 0 for none.
func streamsVersion() int {
	if os.Getenv(StreamsVariable) == "off" {
		return 0
	}
	return stream.Version
}

// speaks reports whether connections to a peer are streams.
func (n *Node) speaks(p *peer) bool { return n.streams != 0 && p.Streams != 0 }

// dialStream opens a stream and waits until it is accepted.
func (n *Node) dialStream(ctx context.Context, p *peer, addr netip.AddrPort) (net.Conn, error) {
	raw, err := n.engine.DialStream(addr)
	if err != nil {
		return nil, errRemoved
	}
	if err := n.awaitStream(ctx, p, raw); err != nil {
		raw.Abort()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	c := newTCPConn(raw, p.live, netip.AddrPortFrom(n.addr, raw.Local()), addr, false)
	if c == nil {
		return nil, errRemoved
	}
	return c, nil
}

// awaitStream blocks until the peer has accepted a stream. Meanwhile it makes sure that the underlying WireGuard
// session is established.
func (n *Node) awaitStream(ctx context.Context, p *peer, raw engine.Stream) error {
	wait, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	defer func() {
		cancel()
		<-done
	}()
	go func() {
		defer close(done)
		for try := 0; wait.Err() == nil; try++ {
			seen, futile := p.live.handshakes()
			if n.unanswered(wait, p, seen, max(try, futile)) {
				n.restart(p, seen)
				raw.Again()
			}
		}
	}()
	return raw.Wait(wait)
}

// Open is like Dial with network "tcp", but does not wait: written data travels with the request, and Read and Write
// return the errors that Dial would. Open does wait if the peer does not support streams.
func (n *Node) Open(ctx context.Context, addr netip.AddrPort) (net.Conn, error) {
	p := n.peers.ip(addr.Addr())
	if n.closed.Load() || p == nil || !n.speaks(p) {
		return n.Dial(ctx, "tcp", addr)
	}
	raw, err := n.engine.DialStream(addr)
	if err != nil {
		return nil, errRemoved
	}
	c := newTCPConn(raw, p.live, netip.AddrPortFrom(n.addr, raw.Local()), addr, false)
	if c == nil {
		return nil, errRemoved
	}
	n.spawn(func() {
		ctx, cancel := context.WithTimeout(n.ctx, dialTimeout)
		defer cancel()
		defer context.AfterFunc(p.live.ctx, cancel)()
		if err := n.awaitStream(ctx, p, raw); err != nil && ctx.Err() != nil {
			raw.Abort()
		}
	})
	return c, nil
}
