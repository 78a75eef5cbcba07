package stripe

import (
	"net"
	"sync"
	"time"
)

// What is on its way is bounded by how long it takes: when chunks take longer than they did, they wait in a queue on the path, and
// before that one is full there is to be less. TCP alone, on many connections at once, fills the queue and loses a
// windowful of packets each time. This is Vegas (Brakmo, Peterson 1994) over all connections of a stream; below minAllowed they are left to TCP.

const (
	// minAllowed is how many chunks may always be on their way: 2 MiB.
	minAllowed = 2 << 20 / MaxChunk
	maxAllowed = Window / MaxChunk
	// baseTime is how long the shortest time counts that a chunk took.
	baseTime = 10 * time.Second
)

// outlet is a connection as the sending side sees it.
type outlet struct {
	net.Conn
	how     entry
	settled chan struct{} // closed when it is counted or dropped, or the stream is over

	// Guarded by Conn.mu.
	bit     uint32 // its own, once it is counted
	counted bool   // in Conn.stripes
	heard   bool   // the other end has sent something on it
	dropped bool   // it is over, and the stream goes on
	carries int    // chunks that it was the last to take and that have not arrived
	idle    bool   // its sender waits for wake
	wake    sync.Cond
}

// pace is how much may be on its way. It is guarded by Conn.mu.
type pace struct {
	limit int // chunks; 0 before the path was full for the first time

	// The shortest times that chunks took: since turned, in the baseTime before that, and in this round. 0 while there is none.
	recent, before, best time.Duration
	turned, began        time.Time
	full                 bool // in this round the limit was reached
}

// allowed is how many chunks may be on their way.
func (p *pace) allowed() int {
	if p.limit == 0 {
		return maxAllowed
	}
	return p.limit
}

// sample takes in how long a chunk took.
func (p *pace) sample(d time.Duration) {
	for _, shortest := range []*time.Duration{&p.best, &p.recent} {
		if *shortest == 0 || d < *shortest {
			*shortest = d
		}
	}
}

// base is how long a chunk takes that waits for nothing.
func (p *pace) base() time.Duration {
	if p.before == 0 {
		return p.recent
	}
	return min(p.before, p.recent)
}

// adjust changes the limit once in a round trip. onTheWay is in chunks; full tells that the limit was reached.
func (p *pace) adjust(now time.Time, onTheWay int, full bool) {
	p.full = p.full || full
	base := p.base()
	if p.best == 0 || now.Sub(p.began) < base {
		return
	}
	switch queued := p.best - base; {
	case p.limit == 0:
		// A chunk takes several round trips while TCP's windows are small: that is no queue.
		if queued > base/4+8*time.Millisecond && onTheWay >= 2*minAllowed {
			p.limit = onTheWay * 3 / 4
		}
	case queued > base*2/5+10*time.Millisecond:
		p.limit = max(p.limit-p.limit/8, minAllowed)
	case queued < base/8+4*time.Millisecond && p.full:
		p.limit = min(p.limit+max(2, p.limit/8), maxAllowed)
	}
	if now.Sub(p.turned) >= baseTime {
		p.before, p.recent, p.turned = p.recent, p.best, now
	}
	p.best, p.began, p.full = 0, now, false
}

// mayCarry reports whether a connection may take one more chunk: a slow one is not to have more than its share.
func (c *Conn) mayCarry(o *outlet) bool {
	return c.limit == 0 || o.carries*len(c.stripes) <= c.limit+c.limit/4
}
