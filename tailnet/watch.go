package tailnet

import (
	"net/netip"
	"time"
)

const (
	watchInterval = time.Second
	// sleepJump is how much further the wall clock must have come than the monotonic one, which stands still while the
	// machine sleeps. A clock that is merely set looks the same and costs a needless rebind.
	sleepJump = 10 * time.Second
)

// clock is where the watcher gets its time from: real, or a test's.
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

// watch rebinds when the machine has slept, and takes in what was measured.
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
		// A machine that slept stopped one of the clocks; a process that was stopped missed its ticks.
		asleep := max(nextWall.Sub(wall)-(nextMono-mono), nextMono-mono-watchInterval)
		wall, mono = nextWall, nextMono
		if asleep >= sleepJump {
			n.log.Info("the machine slept", "duration", asleep.Round(time.Second))
			n.Rebind("sleep")
		}
		n.noteMeasured()
	}
}

const (
	// renewTime is how long a session that was started afresh gets handshakes of this node's making.
	renewTime = 12 * time.Second
	// renewPatience bounds how a try's budget grows: the peer may not know yet that its old path is void.
	renewPatience = 3
)

// renewSessions starts the WireGuard sessions that connections wait for afresh, and does not wait. The other end may have forgotten
// them: its clock went on while this machine's stood still.
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

// renew blocks until the peer has a session, or renewTime is over. A handshake gets lost while the relay connection is being made,
// and its answer while the peer still sends to where this node was; WireGuard by itself tries again after five seconds.
func (n *Node) renew(p *peer) {
	for try, begin := 0, time.Now(); time.Since(begin) < renewTime; try++ {
		seen, _ := p.live.handshakes()
		n.restart(p, seen)
		n.engine.Echo(p.addr, nil)
		if !n.stalled(n.ctx, p, min(try, renewPatience)) {
			return
		}
	}
}

// moved is called by the engine when the machine's network is another one.
func (n *Node) moved(networkInterface string) {
	n.log.Info("network changed", "interface", networkInterface)
	n.Rebind("network change")
}

// Rebind opens new sockets, connects to the relay anew and looks for paths again, at once. Connections survive it. reason is
// for the log.
func (n *Node) Rebind(reason string) {
	if n.closed.Load() {
		return
	}
	n.log.Debug("rebind", "reason", reason)
	n.forgetMapped()
	n.engine.Rebind()
	n.updateInfo(func(info *NodeInfo) { info.Moves, info.Mapped, info.Measured = info.Moves+1, netip.AddrPort{}, false })
	n.measure(reason)
	n.rebinds.Add(1)
	n.renewSessions()
	n.revived()
}
