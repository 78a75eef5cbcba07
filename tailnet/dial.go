package tailnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

var (
	// ErrUnknownPeer is returned if no peer with that address or id was introduced, or if the peer is removed before
	// the call completes.
	ErrUnknownPeer = errors.New("no such peer")
	// ErrClosed is returned by calls on a closed node.
	ErrClosed = errors.New("the mesh node is closed")

	errRemoved = fmt.Errorf("peer was removed: %w", ErrUnknownPeer)
)

const (
	// dialTimeout bounds a Dial whose context has no deadline.
	dialTimeout = 30 * time.Second
	// firstBudget is how long a WireGuard handshake may take before its first message is repeated, or before it is
	// restarted after this node has moved. It doubles each time.
	//
	// WireGuard itself retransmits a handshake after 5 seconds. A single message lost while the two sides are still
	// being introduced to each other, or while a relay connection is being established, would cost that much.
	firstBudget = 400 * time.Millisecond
	// silentBudget is how long a session that was there before may leave a new connection unanswered before it is
	// considered dead. It doubles with each try. A session that was just established gets maxBudget: its peer cannot
	// have forgotten it but may be busy.
	silentBudget = time.Second
	maxBudget    = 5 * time.Second
	// Once a path has answered a ping, the handshake gets another pathTrips round trips of that ping, but at least
	// pathGrace; then its first message is repeated. A handshake takes one round trip on its own path, the relay's; the
	// ping may have taken a direct path half as long. If the copy is not answered either, the peer is probably busy,
	// and a dial waits busyTrips round trips, but at least busyBudget, before it restarts the handshake, which doubles
	// with each try. A restart voids the work that the peer has done for the handshake. If a thousand agents that
	// return to a server did not wait, most of its work would be void.
	pathGrace  = 25 * time.Millisecond
	pathTrips  = 2
	busyBudget = 500 * time.Millisecond
	busyTrips  = 8
	// firstGap is the gap between the first two pings. It doubles with each.
	firstGap = 25 * time.Millisecond
)

// Dial connects to a port of a peer. network is "tcp" or "udp". It blocks until the connection is established, the peer
// refuses it or is removed, or ctx ends (after 30 s if it has no deadline). The error is syscall.ECONNREFUSED,
// ErrUnknownPeer, ErrClosed or the context's. A peer that does not allow the port does not answer. Packets go through a
// relay at first, and directly as soon as a direct path is proven. A UDP "connection" is established once the WireGuard
// session exists.
func (n *Node) Dial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	c, err := n.dial(ctx, network, addr)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(addr), Err: err}
	}
	return c, nil
}

func (n *Node) dial(ctx context.Context, network string, addr netip.AddrPort) (net.Conn, error) {
	if n.closed.Load() {
		return nil, ErrClosed
	}
	p := n.peers.ip(addr.Addr())
	if p == nil {
		return nil, ErrUnknownPeer
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, dialTimeout)
		defer cancel()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(n.ctx, func() { cancel(ErrClosed) })()
	defer context.AfterFunc(p.live.ctx, func() { cancel(errRemoved) })()

	switch network {
	case "tcp", "tcp6":
		if n.speaks(p) {
			return n.dialStream(ctx, p, addr)
		}
		return n.dialTCP(ctx, p, addr)
	case "udp", "udp6":
		return n.dialUDP(ctx, p, addr)
	}
	return nil, fmt.Errorf("unknown network %q", network)
}

func (n *Node) dialTCP(ctx context.Context, p *peer, addr netip.AddrPort) (net.Conn, error) {
	for try := 0; ; try++ {
		seen, futile := p.live.handshakes()
		raw, stalled, err := n.dialOnce(ctx, p, addr, seen, max(try, futile))
		if err == nil {
			local := raw.LocalAddr().(*net.TCPAddr).AddrPort()
			c := newTCPConn(raw, p.live, local, addr, false)
			if c == nil {
				return nil, errRemoved
			}
			return c, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !stalled {
			return nil, err
		}
		n.restart(p, seen)
	}
}

// restart restarts p's WireGuard session, unless it was restarted since live.handshakes returned seen. Calls waiting
// for the same handshake give up at nearly the same time, and each restart voids the previous handshake along with the
// packets waiting for it. So all of them return once one has restarted it.
func (n *Node) restart(p *peer, seen uint64) {
	p.live.resets.Lock()
	defer p.live.resets.Unlock()
	if p.live.restart(seen) {
		n.log.Debug("restarting handshake", "peer", p.ID, "restarts", seen+1)
		n.engine.ResetSession(p.Key)
	}
}

// grown returns a budget after a number of tries. It stays far from overflow: a dial may retry for hours.
func grown(budget time.Duration, tries int) time.Duration { return budget << min(tries, 10) }

// dialOnce makes one TCP attempt. It gives up and reports stalled when the underlying WireGuard session is not
// established, or when another call has restarted it since live.handshakes returned seen: the attempt's first packet is
// lost in that case.
func (n *Node) dialOnce(
	ctx context.Context, p *peer, addr netip.AddrPort, seen uint64, try int,
) (_ *engine.TCPConn, stalled bool, _ error) {
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	verdict := make(chan bool, 1)
	go func() {
		stuck := n.unanswered(attempt, p, seen, try)
		if stuck {
			cancel()
		}
		verdict <- stuck
	}()
	c, err := n.engine.DialTCP(attempt, addr)
	cancel()
	return c, <-verdict, err
}

func (n *Node) dialUDP(ctx context.Context, p *peer, addr netip.AddrPort) (net.Conn, error) {
	for try := 0; ; try++ {
		if established, _ := p.live.established(); established {
			break
		}
		seen, futile := p.live.handshakes()
		n.engine.Echo(p.addr, nil) // any packet starts the handshake
		if n.stalled(ctx, p, max(try, futile), busyBudget) {
			n.restart(p, seen)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	raw, err := n.engine.DialUDP(addr)
	if err != nil {
		return nil, err
	}
	c := newUDPConn(raw, p.live, raw.LocalAddr().(*net.UDPAddr).AddrPort(), addr, false)
	if c == nil {
		return nil, errRemoved
	}
	return c, nil
}

// stalled watches the WireGuard handshake underlying an attempt to reach p. It returns false when there is a session or
// ctx ends, and true when the handshake has used up its time. Meanwhile it pings the peer's paths, which also starts
// the search for a direct one. While no path answers, stalled repeats the handshake's first message. Once one has
// answered, stalled repeats it again, since it was perhaps sent too early for that path, and leaves the peer the time
// busy, which doubles with each try. A busy of 0 means that the handshake may be void, and its copies with it: stalled
// then leaves it little time.
func (n *Node) stalled(ctx context.Context, p *peer, try int, busy time.Duration) bool {
	established, changed := p.live.established()
	if established {
		return false
	}
	budget, copies := min(grown(firstBudget, try), maxBudget), p.live.repeats()
	timer := time.NewTimer(budget)
	defer timer.Stop()
	answered, repeated := false, false
	pongs := make(chan time.Duration, 1)
	gap := firstGap
	probe := time.NewTimer(0)
	defer probe.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			established, _ = p.live.established()
			switch {
			case established:
				return false
			case repeated, !answered && (busy == 0 || budget == maxBudget):
				return true
			case answered:
				repeated = true
				budget = min(grown(max(busy, pathGrace), try), maxBudget)
			default:
				budget = min(2*budget, maxBudget)
			}
			if p.live.repeat(copies) {
				n.engine.RepeatHandshake(p.Key)
			}
			copies = p.live.repeats()
			timer.Reset(budget)
		case <-changed:
			if established, changed = p.live.established(); established {
				return false
			}
		case latency := <-pongs:
			probe.Stop()
			if !answered {
				answered = true
				if busy != 0 {
					busy = max(busy, busyTrips*latency)
				}
				copies = p.live.repeats()
				timer.Reset(max(pathGrace, pathTrips*latency))
			}
		case <-probe.C:
			if p.WireGuardOnly {
				continue
			}
			n.engine.Ping(p.Key, func(pong engine.Pong) {
				if pong.Err != "" {
					return
				}
				p.live.setLatency(pong.Latency)
				select {
				case pongs <- pong.Latency:
				default:
				}
			})
			probe.Reset(gap)
			gap = min(2*gap, time.Second)
		}
	}
}

// unanswered watches the WireGuard session underlying an attempt to reach p. It returns false when ctx ends, and true
// when the session must be restarted or when another call has restarted it since live.handshakes returned seen.
func (n *Node) unanswered(ctx context.Context, p *peer, seen uint64, try int) bool {
	budget := min(grown(silentBudget, try), maxBudget)
	if established, _ := p.live.established(); !established {
		budget = maxBudget
	}
	if n.stalled(ctx, p, try, busyBudget) {
		return true
	}
	restarts, _ := p.live.handshakes()
	return restarts != seen || n.silent(ctx, p, budget)
}

// silent reports whether a session receives nothing while ctx still waits for it. The other end may have forgotten the
// session (WireGuard takes 15 seconds to find out).
func (n *Node) silent(ctx context.Context, p *peer, budget time.Duration) bool {
	before, _ := n.engine.Traffic(p.Key)
	timer := time.NewTimer(budget)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		now, _ := n.engine.Traffic(p.Key)
		return now == before
	}
}
