package tailnet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// live is the state of one peer's key: its WireGuard session and its connections.
type live struct {
	renewing atomic.Bool     // its session is being restarted: see Node.renew
	ctx      context.Context // ends when the key leaves the peer table
	cancel   context.CancelFunc

	resets sync.Mutex // held while the engine drops the session, since packets sent before that are lost; acquired before mu

	mu      sync.Mutex
	session bool             // there is a WireGuard session
	changed notify.Broadcast // notified when session changes
	ended   bool
	conns   map[*trackedConn]struct{}
	closing []engine.Conn // closed here, but possibly not yet finished
	flows   int           // inbound UDP flows among conns
	latency time.Duration // of the latest answered ping, 0 before the first
	last    time.Time     // when a TCP connection was last closed before the peer closed it

	restarts  uint64    // how often this node restarted the session
	restarted time.Time // when it last did
	futile    int       // number of restarts since the last session, at most maxFutile
	copies    uint64    // how often this node repeated the first message of a handshake
}

// maxFutile bounds how much longer a new dial waits because earlier ones failed: the peer may just have come back.
const maxFutile = 2

func newLive() *live {
	ctx, cancel := context.WithCancel(context.Background())
	return &live{ctx: ctx, cancel: cancel, conns: make(map[*trackedConn]struct{})}
}

// setSession is called with the engine's locks held.
func (l *live) setSession(established bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == established {
		return
	}
	l.session = established
	if established {
		l.futile = 0
	}
	l.changed.Notify()
}

// established reports whether there is a WireGuard session, and returns a channel that is closed when that may have
// changed.
func (l *live) established() (yes bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.changed.Changed()
}

// handshakes returns how often the session was restarted, to be passed to restart, and how many restarts have not led
// to a session so far.
func (l *live) handshakes() (restarts uint64, futile int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restarts, l.futile
}

// restartGap is the minimum time between two restarts. A peer takes a handshake for a replay if it begins within 17 ms
// of the previous one, whose timestamp it shares, and for a flood within 20 ms. In addition, wireguard-go leaks
// goroutines, which nothing ever stops, when it removes a peer that another of its goroutines is just about to start: a
// restart must not coincide with the packet that follows another restart.
const restartGap = 25 * time.Millisecond

// restart reports whether the caller must restart the session. It returns false if the session was restarted since
// handshakes returned seen, or within the last restartGap.
func (l *live) restart(seen uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.restarts != seen || time.Since(l.restarted) < restartGap {
		return false
	}
	l.restarts++
	l.restarted = time.Now()
	l.futile = min(l.futile+1, maxFutile)
	return true
}

// repeats returns how often the first message of a handshake was repeated, to be passed to repeat.
func (l *live) repeats() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copies
}

// repeat reports whether the caller must repeat the first message of the handshake. It returns false if that was done
// since repeats returned seen: calls that wait for the same handshake share its copies.
func (l *live) repeat(seen uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.copies != seen {
		return false
	}
	l.copies++
	return true
}

// add registers a connection. It returns false if the peer is gone or has too many flows.
func (l *live) add(c *trackedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || c.udp && c.inbound && l.flows >= maxFlows {
		return false
	}
	l.conns[c] = struct{}{}
	if c.udp && c.inbound {
		l.flows++
	}
	return true
}

func (l *live) remove(c *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.conns[c]; !ok {
		return
	}
	delete(l.conns, c)
	if !c.udp {
		l.closing = append(slices.DeleteFunc(l.closing, engine.Conn.Over), c.tcp)
	}
	switch {
	case !c.udp && !c.eof.Load():
		l.last = time.Now()
	case c.udp && c.inbound:
		l.flows--
	}
}

// end closes all connections and refuses new ones, without waiting for the peer to answer.
func (l *live) end() {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.cancel()
	l.closeWhere(func(*trackedConn) bool { return true })
	l.mu.Lock()
	closing := l.closing
	l.closing = nil
	l.mu.Unlock()
	for _, c := range closing {
		c.Abort()
	}
}

func (l *live) closeWhere(match func(*trackedConn) bool) {
	l.mu.Lock()
	var doomed []*trackedConn
	for c := range l.conns {
		if match(c) {
			doomed = append(doomed, c)
		}
	}
	l.mu.Unlock()
	for _, c := range doomed {
		c.Close()
	}
}

// openTCP returns the TCP connections that are currently open.
func (l *live) openTCP() []*trackedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	var open []*trackedConn
	for c := range l.conns {
		if !c.udp {
			open = append(open, c)
		}
	}
	return open
}

// directions reports whether there are TCP connections or flows, and whether this node opened any of them.
func (l *live) directions() (outbound, open bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if !c.inbound {
			return true, true
		}
	}
	return false, len(l.conns) > 0
}

func (l *live) setLatency(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latency = d
}

// roundTrip returns the latency of the latest answered ping, 0 before the first.
func (l *live) roundTrip() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.latency
}

// closedJustNow reports whether the last packets of a TCP connection may still be in flight.
func (l *live) closedJustNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last.IsZero() && time.Since(l.last) < time.Second
}
