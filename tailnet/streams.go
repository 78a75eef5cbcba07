package tailnet

import (
	"context"
	"net"
	"net/netip"
	"os"

	"github.com/codermesh/codermesh/tailnet/engine"
	"github.com/codermesh/codermesh/tailnet/stream"
)

// StreamsVariable is the environment variable that makes a process use TCP inside the mesh where it would use streams, if it is "off".
// Its peers then do so too. It is for finding out whether streams are to blame for something.
const StreamsVariable = "CODER_MESH_STREAMS"

// streamsVersion is the version of the stream protocol that this node speaks, 0 for none.
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

// awaitStream blocks until the peer has accepted a stream. Meanwhile it has the WireGuard session below come about.
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
			patience := silentBudget
			if established, _ := p.live.established(); !established {
				patience = firstBudget
			}
			if n.stalled(wait, p, max(try, futile)) || n.silent(wait, p, min(grown(patience, try), maxBudget)) {
				n.restart(p, seen)
				raw.Again()
			}
		}
	}()
	return raw.Wait(wait)
}

// Open is Dial for a network of "tcp" that does not wait: what is written travels with the request, and what Dial would return as an error Read and
// Write do. It does wait where the peer has no streams.
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
