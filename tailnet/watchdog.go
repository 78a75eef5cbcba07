package tailnet

import (
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// The engine detects a dead path only when it has something to send, and takes its time: WireGuard asks for a new
// session after 15 seconds of silence and repeats that every 5, a relay connection over a dead TCP connection waits for
// the kernel's next retransmission, and a recovered path is noticed only with the next heartbeat. The watchdog shortens
// each of these for watched peers with open connections: it listens for signs of life. Without any, it tries the paths
// four times a second, and the session as soon as a path answers.
const (
	watchdogTick = 500 * time.Millisecond
	// alertTick replaces watchdogTick while a path is considered dead; askGap is the time between two attempts on it.
	alertTick = 50 * time.Millisecond
	askGap    = 250 * time.Millisecond
	// quiet is how long a peer may be silent before it is asked for a sign of life.
	quiet = 2 * time.Second
	// overdue is how long an answer may take before the path is considered dead.
	overdue = time.Second
	// deaf is how long an established session may receive nothing over a path that answers before it is restarted.
	deaf = time.Second
	// breakGap is the minimum time between two checks of the relay connections while a relay does not carry packets to
	// a peer.
	breakGap = time.Second
)

// vitals is what the watchdog has observed of one peer. Only the watchdog's goroutine uses it, except for pong.
type vitals struct {
	rx, tx  uint64
	heard   time.Time // when rx last grew, or when watching began
	sent    time.Time // when tx last grew
	asked   time.Time // when a sign of life was first asked for
	tried   time.Time // when one was last asked for
	stalled time.Time // since when the path is considered dead; zero if it is not
	reset   time.Time // when the session was last restarted; zero if it has received something since
	pong    *atomic.Int64
}

// watchdog runs until the node closes.
func (n *Node) watchdog() {
	tick := time.NewTicker(watchdogTick)
	defer tick.Stop()
	rows := make(map[*live]*vitals)
	var broke time.Time // when the relay connections were last checked
	renewed := n.engine.RelaysRenewed()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		seen := make(map[*live]bool)
		down, alert := false, false
		fresh := n.engine.RelaysRenewed()
		for _, p := range n.watchedPeers() {
			outbound, open := p.live.directions()
			if !open {
				continue
			}
			seen[p.live] = true
			w := rows[p.live]
			if w == nil {
				w = &vitals{heard: now, pong: new(atomic.Int64)}
				rows[p.live] = w
			}
			if fresh != renewed {
				w.tried = time.Time{} // a new relay connection may provide a path
			}
			down = n.check(p, w, outbound, now) || down
			alert = alert || !w.stalled.IsZero()
		}
		renewed = fresh
		next := watchdogTick
		if alert {
			next = alertTick
		}
		tick.Reset(next)
		for l := range rows {
			if !seen[l] {
				delete(rows, l)
			}
		}
		if down && now.Sub(broke) >= breakGap {
			n.engine.CheckRelays(overdue)
			broke = now
		}
	}
}

// check repairs the path to one peer. It reports whether even the relay does not carry packets to it.
func (n *Node) check(p *peer, w *vitals, outbound bool, now time.Time) (down bool) {
	rx, tx := n.engine.Traffic(p.Key)
	if rx != w.rx {
		if !w.stalled.IsZero() {
			n.log.Info("path is back", "peer", p.ID, "duration", now.Sub(w.stalled).Round(100*time.Millisecond))
			n.revived()
		}
		w.rx, w.heard, w.stalled, w.asked, w.reset = rx, now, time.Time{}, time.Time{}, time.Time{}
	}
	if tx != w.tx {
		w.tx, w.sent = tx, now
	}
	pong := time.Unix(0, w.pong.Load())
	alive := pong
	if w.heard.After(alive) {
		alive = w.heard
	}
	waiting := w.sent.After(w.heard) // for an answer to what was sent
	switch {
	case now.Sub(alive) >= quiet && (outbound || waiting) && w.asked.IsZero():
		w.asked = now
		n.ask(p, w)
		n.engine.CheckRelays(overdue)
		return false
	case !w.asked.IsZero() && pong.After(w.asked) && !waiting && w.stalled.IsZero():
		w.asked = time.Time{} // the peer is alive and just had nothing to send
		return false
	case w.asked.IsZero() || now.Sub(w.asked) < overdue && !pong.After(w.asked):
		return false
	}
	if w.stalled.IsZero() {
		w.stalled = now
		n.log.Info("path is silent", "peer", p.ID, "duration", now.Sub(w.heard).Round(100*time.Millisecond))
	}
	if now.Sub(w.tried) >= askGap {
		n.ask(p, w)
		n.engine.Echo(p.addr, nil) // if it gets through, both ends learn at the same time that the path is back
	}
	if now.Sub(pong) > overdue {
		return true
	}
	// The path answers but the session does not: packets sent now, including a handshake if needed, get through.
	if now.Sub(w.heard) >= deaf && now.Sub(w.reset) >= deaf {
		if !w.reset.IsZero() {
			seen, _ := p.live.handshakes()
			n.restart(p, seen)
			w.rx, w.tx = 0, 0
		}
		w.reset = now
		n.engine.Echo(p.addr, nil)
	}
	return false
}

// ask pings all of the peer's paths.
func (n *Node) ask(p *peer, w *vitals) {
	if p.WireGuardOnly {
		return
	}
	w.tried = time.Now()
	pong := w.pong
	n.engine.Ping(p.Key, func(answer engine.Pong) {
		if answer.Err == "" {
			pong.Store(time.Now().UnixNano())
		}
	})
}

// watchedPeers returns the peers whose paths the watchdog keeps alive.
func (n *Node) watchedPeers() []*peer {
	if n.peers.watched.Load() == 0 {
		return nil
	}
	var rows []*peer
	for _, p := range n.peers.all() {
		if p.Watch {
			rows = append(rows, p)
		}
	}
	return rows
}

// revived notifies the owner that a dead path works again.
func (n *Node) revived() {
	if n.opts.Revived != nil {
		n.opts.Revived()
	}
}
