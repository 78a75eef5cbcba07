package tailnet

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/tailnet/engine"
)

// live is what happens with one peer's key: the state of its WireGuard session, and its connections.
type live struct {
	renewing atomic.Bool     // its session is being started afresh: see Node.renew
	ctx      context.Context // ends with the key's place in the peer table
	cancel   context.CancelFunc

	resets sync.Mutex // held while the engine drops the session: what is sent before that is lost; taken before mu

	mu      sync.Mutex
	session bool             // there is a WireGuard session
	changed notify.Broadcast // session changes
	ended   bool
	conns   map[*trackedConn]struct{}
	closing []engine.Conn // were closed here and may not be over
	flows   int           // inbound UDP flows among conns
	latency time.Duration // of the latest ping that was answered, 0 before the first
	last    time.Time     // when a TCP connection was last closed before its other end was

	restarts  uint64    // how often this node started the session afresh
	restarted time.Time // the last time
	futile    int       // how many restarts there were since the last session, maxFutile at most
}

// maxFutile bounds how patient a new dial is because earlier ones were in vain: the peer may be back just then.
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

// established reports whether there is a WireGuard session, and a channel that is closed when that may have changed.
func (l *live) established() (yes bool, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session, l.changed.Changed()
}

// handshakes returns how often the session was restarted, for restart, and how many of the restarts brought no session so far.
func (l *live) handshakes() (restarts uint64, futile int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.restarts, l.futile
}

// restartGap is the shortest time between two restarts. A peer takes a handshake for a replay if it begins within 17 ms of the one
// before, whose timestamp it shares, and for a flood within 20. And wireguard-go leaves goroutines behind, which nothing ends, when it
// removes a peer that another goroutine of its own is just about to start: a restart must not meet the packet that follows another.
const restartGap = 25 * time.Millisecond

// restart reports whether the caller must restart the session: unless it was restarted since handshakes returned seen, or just now.
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

// add takes a connection into account. It reports false if the peer is gone or has too many flows.
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
	case !c.udp && !c.heard.Load():
		l.last = time.Now()
	case c.udp && c.inbound:
		l.flows--
	}
}

// end closes all connections, refuses new ones, and waits for no answer of the other end.
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

// openTCP is the TCP connections that are open now.
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

// closedJustNow reports whether the last packets of a TCP connection may still be on their way.
func (l *live) closedJustNow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.last.IsZero() && time.Since(l.last) < time.Second
}
