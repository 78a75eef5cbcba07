package tailnet

import (
	"net/netip"
	"time"
)

const (
	watchInterval = time.Second
	// sleepJump is how much further the wall clock must have advanced than the monotonic one, which stops while the
	// machine sleeps. Setting the clock looks the same and costs a needless rebind.
	sleepJump = 10 * time.Second
	// setBackJump is how much further the monotonic clock must have advanced than the wall clock. A handshake that is
	// lost because of a smaller step is repeated after as long.
	setBackJump = 5 * time.Second
)

// clock is the watcher's source of time: real, or a test's.
type clock struct {
	now  func() (wall time.Time, mono time.Duration)
	tick <-chan time.Time
	stop func()
}

func realClock() clock {
	start := time.Now()
	ticker := time.NewTicker(watchInterval)
	return clock{
		now: func() (time.Time, time.Duration) {
			now := time.Now()
			return now.Round(0), now.Sub(start)
		},
		tick: ticker.C,
		stop: ticker.Stop,
	}
}

// watch rebinds after the machine has slept, begins sessions anew after its clock was set back, and records network
// measurements.
func (n *Node) watch(c clock) {
	defer c.stop()
	wall, mono := c.now()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-c.tick:
		}
		nextWall, nextMono := c.now()
		// If the machine slept, one of the clocks stopped; if the process was stopped, it missed its ticks.
		ahead := nextWall.Sub(wall) - (nextMono - mono)
		asleep := max(ahead, nextMono-mono-watchInterval)
		wall, mono = nextWall, nextMono
		if ahead <= -setBackJump {
			n.log.Warn("the clock was set back", "duration", -ahead.Round(time.Second))
			n.forgetSessions()
		}
		if asleep >= sleepJump {
			n.log.Info("machine slept", "duration", asleep.Round(time.Second))
			n.Rebind("sleep")
		}
		n.noteMeasured()
	}
}

// forgetSessions ends all WireGuard sessions, and begins those anew that connections use. A node ignores handshakes of
// a peer that are not later, by the peer's clock, than the last one. The peer then begins one, unless its clock was set
// back too, as that of an agent on this machine: so this node forgets how late it was at its peers.
func (n *Node) forgetSessions() {
	for _, p := range n.peers.all() {
		seen, _ := p.live.handshakes()
		n.restart(p, seen)
		if _, open := p.live.directions(); open {
			n.engine.Echo(p.addr, nil)
		}
	}
}

const (
	// renewTime is how long this node keeps starting handshakes for a restarted session.
	renewTime = 12 * time.Second
	// renewPatience bounds how a try's budget grows: the peer may not know yet that its old path is void.
	renewPatience = 3
	// renewSilence is how long a peer may leave the renewed session unused, at least. It doubles each time.
	renewSilence = 250 * time.Millisecond
	renewTrips   = 4 // round trips that the peer gets at least
)

// renewSessions restarts the WireGuard sessions of watched peers with open connections, without waiting. The peer may
// have forgotten a session: its clock kept running while this machine's stood still.
func (n *Node) renewSessions() {
	for _, p := range n.watchedPeers() {
		if _, open := p.live.directions(); open && p.live.renewing.CompareAndSwap(false, true) {
			n.spawn(func() {
				defer p.live.renewing.Store(false)
				n.renew(p)
			})
		}
	}
}

// renew blocks until the peer uses a session with this node or renewTime is over. A handshake is lost while the relay
// connection is being established, and its answer is lost while the peer still sends to this node's old address;
// WireGuard alone retries only after five seconds. If the peer began a handshake while this node slept, and takes an
// answer that this node has forgotten, it goes on sending with keys that this node does not have. So a peer that does
// not answer through a session gets another one.
func (n *Node) renew(p *peer) {
	for try, begin := 0, time.Now(); time.Since(begin) < renewTime; try++ {
		seen, _ := p.live.handshakes()
		n.restart(p, seen)
		n.engine.Echo(p.addr, nil)
		patience := min(try, renewPatience)
		if n.stalled(n.ctx, p, patience, 0) {
			continue
		}
		outbound, _ := p.live.directions() // only a peer that lets this node open connections answers
		if !outbound || n.ctx.Err() != nil {
			return
		}
		n.engine.Echo(p.addr, nil)
		if !n.silent(n.ctx, p, max(grown(renewSilence, patience), renewTrips*p.live.roundTrip())) {
			return
		}
	}
}

// moved is called by the engine when the machine's network has changed.
func (n *Node) moved(networkInterface string) {
	n.log.Info("network changed", "interface", networkInterface)
	n.Rebind("network change")
}

// Rebind immediately opens new sockets, reconnects to the relay and searches for paths again. Connections survive it.
// reason is for the log.
func (n *Node) Rebind(reason string) {
	if n.closed.Load() {
		return
	}
	n.log.Debug("rebinding", "reason", reason)
	n.forgetMapped()
	n.engine.Rebind()
	n.updateInfo(func(info *NodeInfo) { info.Moves, info.Mapped, info.Measured = info.Moves+1, netip.AddrPort{}, false })
	n.measure(reason)
	n.rebinds.Add(1)
	n.renewSessions()
	n.revived()
}
