package engine

import (
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	// maxInside is the maximum number of packets inside WireGuard in one direction. Each has a buffer of 64 KiB there,
	// which nothing else limits, while streams have far more in flight than the machine can encrypt at once.
	maxInside = 512
	// forgetInside is the time without a packet coming out after which WireGuard is considered empty: it drops packets
	// too.
	forgetInside = 50 * time.Millisecond
)

// gauge counts the packets that are inside WireGuard.
type gauge struct {
	mu    sync.Mutex
	count int
	moved time.Time // when a packet last came out
	room  notify.Wake
}

func newGauge() *gauge { return &gauge{room: notify.NewWake()} }

// enter counts n packets that go in.
func (g *gauge) enter(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		g.moved = time.Now()
	}
	g.count += n
}

// leave counts n packets that come out. Packets that went in uncounted do no harm.
func (g *gauge) leave(n int) {
	g.mu.Lock()
	before := g.count
	g.count = max(g.count-n, 0)
	g.moved = time.Now()
	after := g.count
	g.mu.Unlock()
	if before >= maxInside && after < maxInside {
		g.room.Poke()
	}
}

// full reports whether no more packets may go in.
func (g *gauge) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count < maxInside {
		return false
	}
	if time.Since(g.moved) > forgetInside {
		g.count = 0
		return false
	}
	return true
}

// wait blocks until there is room, or done is closed.
func (g *gauge) wait(done <-chan struct{}) {
	for g.full() {
		timer := time.NewTimer(forgetInside)
		select {
		case <-g.room:
			if !g.full() {
				g.room.Poke() // wake the next waiter
			}
		case <-timer.C:
		case <-done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
