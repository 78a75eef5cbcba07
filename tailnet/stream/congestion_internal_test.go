package stream

import (
	"testing"
	"time"
)

// TestBound follows a bound through a full queue, its way back, and a reduction that is taken back.
func TestBound(t *testing.T) {
	t.Parallel()
	const (
		trip  = 40 * time.Millisecond
		whole = 400 * boundPacket
	)
	at := time.Hour
	grow := func(b *bound, long time.Duration, stay bool) {
		for end := at + long; at < end; at += trip {
			b.grow(at, trip, int(b.bytes), stay)
		}
	}
	near := func(name string, got, least, most float64) {
		t.Helper()
		if got < least || got > most {
			t.Errorf("%s: got %.0f bytes, want %.0f to %.0f", name, got, least, most)
		}
	}
	var b bound
	b.reduce(at, whole, 5000)
	near("after a full queue", b.bytes, boundKept*whole, boundKept*whole)
	grow(&b, 2*time.Second, true)
	near("after 2 s without data", b.bytes, boundKept*whole, 0.81*whole)
	grow(&b, 2*time.Second, false)
	near("after 2 s", b.bytes, 0.9*whole, 0.99*whole)
	grow(&b, 2*time.Second, false)
	near("after 4 s", b.bytes, 0.99*whole, 1.02*whole)
	grow(&b, 5*time.Second, false)
	near("after 9 s", b.bytes, 1.1*whole, 1.5*whole)

	before := b
	b.reduce(at, int(b.bytes), 5000)
	b.undo(2500)
	near("half of it arrived late", b.bytes, 0.79*before.bytes, 0.81*before.bytes)
	b.undo(2500)
	near("all of it arrived late", b.bytes, before.bytes, before.bytes)

	b.reduce(at, whole/2, 5000)
	if most := whole / 2 * (1 + boundKept) / 2; b.most != most {
		t.Errorf("others grow: the curve leads to %.0f bytes, want %.0f", b.most, most)
	}
	b.loosely(whole)
	b.soften(whole)
	near("a loose bound after a round", b.bytes, whole*17/16, whole*17/16)
	b.bytes = 4 * whole
	b.soften(whole)
	near("a loose bound far above the path", b.bytes, 4*whole, 4*whole)
}

// TestQueue tells a queue of this end's from one that others keep.
func TestQueue(t *testing.T) {
	t.Parallel()
	const trip = 40 * time.Millisecond
	at := time.Hour
	round := func(q *queue, wait time.Duration) (crowded bool) {
		for range 16 {
			at += (trip + wait) / 16
			q.measure(at, trip+wait, true)
		}
		return q.endRound(at, trip, trip+wait, true)
	}
	var q queue
	round(&q, 0)
	if q.full() || q.standing {
		t.Error("an empty queue counts as full")
	}
	for range 3 {
		round(&q, 10*time.Millisecond)
	}
	if !q.full() || !q.standing || q.crowded || q.drainAt != 0 {
		t.Errorf("a queue of 10 ms for three rounds: %+v", q)
	}
	at += time.Millisecond
	q.measure(at, trip, true)
	if q.full() {
		t.Error("a packet did not wait, and the queue counts as full")
	}

	// The queue stays until this end drains it: it was its own.
	for q.drainAt == 0 {
		round(&q, 10*time.Millisecond)
	}
	for range 3 {
		round(&q, 0)
	}
	if q.drainAt != 0 || q.crowded || q.standing {
		t.Errorf("drained: %+v", q)
	}

	// It stays whatever this end does: others keep it.
	rounds := 0
	for ; !round(&q, 100*time.Millisecond); rounds++ {
		if rounds > 100 {
			t.Fatalf("no crowd after %d rounds: %+v", rounds, q)
		}
	}
	since := at
	for q.drainAt == 0 {
		round(&q, 100*time.Millisecond)
	}
	if at-since < crowdAge || !q.crowded {
		t.Errorf("looks again after %v", at-since)
	}
	for range 3 {
		round(&q, 0)
	}
	if q.crowded {
		t.Error("the others are gone, and there is a crowd")
	}
}

// TestLossesLowerTheBound loses packets of a controller whose path is known: only those of a full queue matter, and
// only on a direct path.
func TestLossesLowerTheBound(t *testing.T) {
	t.Parallel()
	const trip = 40 * time.Millisecond
	for _, tc := range []struct {
		name    string
		wait    time.Duration
		lost    int // packets of a hundred
		relayed bool
		lowered bool
	}{
		{"a full queue", 10 * time.Millisecond, 5, false, true},
		{"one packet of a full queue", 10 * time.Millisecond, 1, false, false},
		{"an empty queue", 0, 5, false, false},
		{"a relay's queue", 10 * time.Millisecond, 5, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c controller = &congestion{limit: defaultBuffer}
			c.restart(tc.relayed)
			c.hear()
			now := time.Hour
			send := func(wait time.Duration, lost int) {
				sentAt := now
				for range 100 {
					s := c.sent(sentAt, longPacket)
					now = max(now, sentAt+trip+wait)
					if lost > 0 {
						lost--
						c.lose(now, sentAt, longPacket)
					} else {
						c.deliver(now, longPacket)
						c.update(now, s, sentAt, longPacket, now-sentAt)
					}
					sentAt += trip / 100
				}
			}
			for range 20 {
				send(0, 0)
			}
			cc := c.(*congestion)
			if cc.phase != cruise {
				t.Fatalf("in phase %d after 20 rounds at one rate", cc.phase)
			}
			send(tc.wait, 0)
			send(tc.wait, tc.lost)
			if lowered := cc.bound.reducedAt != 0; lowered != tc.lowered {
				t.Errorf("lowered: %v", lowered)
			}
			if n := c.(*congestion).inFlight; n != 0 {
				t.Errorf("%d bytes are in flight", n)
			}
		})
	}
}

// TestFirstFlight counts what may be sent before anything is known of the path.
func TestFirstFlight(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name           string
		heard, relayed bool
		want           int
	}{
		{"nothing has come back", false, false, unheardFlight},
		{"nothing has come back through a relay", false, true, unheardFlight},
		{"a new path", true, false, firstFlight},
		{"a new path through a relay", true, true, relayFlight},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c controller = &congestion{limit: defaultBuffer}
			c.restart(tc.relayed)
			if tc.heard {
				c.hear()
			}
			now, bytes := time.Hour, 0
			for {
				yes, when := c.maySend(now)
				if !yes && when == 0 {
					break
				}
				if !yes {
					now = when
					continue
				}
				c.sent(now, longPacket)
				bytes += longPacket
			}
			if bytes < tc.want || bytes > tc.want+longPacket {
				t.Errorf("%d bytes in flight, want %d", bytes, tc.want)
			}
			c.forget(bytes)
			if yes, _ := c.maySend(now + time.Second); !yes {
				t.Error("packets that were forgotten count as in flight")
			}
		})
	}
}

// TestKeystrokesDoNotSlowThePath sends little after much: the rate of what is offered is not the path's.
func TestKeystrokesDoNotSlowThePath(t *testing.T) {
	t.Parallel()
	const trip = 40 * time.Millisecond
	var c controller = &congestion{limit: defaultBuffer}
	c.restart(false)
	c.hear()
	now := time.Hour
	round := func(packets int) { // sends for a round trip; what was sent arrives in the next
		var samples []sample
		gap := trip / time.Duration(packets)
		for range packets {
			samples = append(samples, c.sent(now, longPacket))
			now += gap
		}
		for _, s := range samples {
			c.deliver(now, longPacket)
			c.update(now, s, now-trip, longPacket, trip)
			now += gap
		}
	}
	for range 20 {
		round(100)
	}
	cc := c.(*congestion)
	before := cc.rate()
	if least := 100 * longPacket / trip.Seconds() / 3; before < least {
		t.Fatalf("a rate of %.0f bytes/s was learned, want %.0f at least", before, least)
	}
	for range 2 * rateRounds {
		c.idle()
		round(1)
	}
	if after := cc.rate(); after < before {
		t.Errorf("after keystrokes the rate is %.0f bytes/s, before %.0f", after, before)
	}
}
