package stream

import (
	"math"
	"time"
)

// bound is an upper bound of the bytes in flight. It falls when a full queue loses packets, and grows again as the
// window of CUBIC does (RFC 9438), so that a stream and a TCP connection that share a queue have similar shares. Unlike
// CUBIC's, it is seldom what limits a sender: the model of the path asks for less, unless others keep the queue full.
//
//	  bytes
//	    │        full queue
//	    │            ▼                                    ╱
//	most├──────────╮╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╶╱╶╶
//	    │          │                     ╭──────────────╯  probes beyond
//	    │          │               ╭─────╯  long near the bound that was
//	    │          ╰──────╮   ╭────╯
//	    │  × boundKept    ╰───╯
//	    └──────────────────────────────────────────────────── time
type bound struct {
	bytes float64 // 0: none
	// soft is set if no full queue was seen: startup or random losses set the bound, and it grows by a sixteenth per
	// round.
	soft bool

	most      float64       // the bound that was too high
	epoch     time.Duration // when the curve begins; 0: with the next growth
	grownAt   time.Duration
	steep     float64       // seconds until the curve is back at most
	linear    float64       // what a sender would have that adds a constant per round trip: RFC 9438, section 4.3
	reducedAt time.Duration // losses of packets sent before it belong to the last reduction

	before      [2]float64 // bytes and most before the last reduction
	lost, found int        // bytes whose losses led to it, and those of them that have arrived after all
}

const (
	// boundKept is what a full queue leaves of the bytes in flight. CUBIC keeps 0.7 (RFC 9438, section 4.6), but its
	// bursts lose fewer packets of others: with 0.7 four streams had less than a third beside four CUBIC, and a stream
	// alone on a short queue 6 % less (decision 38).
	boundKept = 0.8
	// boundCurve is CUBIC's constant C, in packets of boundPacket bytes per second³ (RFC 9438, section 5).
	boundCurve  = 0.4
	boundPacket = 1448
	// boundLinear is what the linear estimate gains per round trip, in packets (RFC 9438, section 4.3, with CUBIC's
	// 0.7).
	boundLinear = 3 * 0.3 / 1.7
)

// loosely sets a bound that is only an estimate.
func (b *bound) loosely(n int) { b.bytes, b.most, b.epoch, b.soft = float64(n), float64(n), 0, true }

// begin sets a bound for a sender that others crowd, and that has none.
func (b *bound) begin(n int) {
	if b.bytes == 0 {
		b.bytes, b.most, b.epoch, b.soft = float64(n), float64(n), 0, false
	}
}

// reduce lowers the bound because a full queue has lost that many of inFlight bytes.
func (b *bound) reduce(now time.Duration, inFlight, lost int) {
	b.before = [2]float64{b.bytes, b.most}
	b.lost, b.found = lost, 0
	at := float64(inFlight)
	if b.bytes != 0 {
		at = min(at, b.bytes)
	}
	if at < b.most { // the others grow: make room for them (RFC 9438, section 4.7)
		b.most = at * (1 + boundKept) / 2
	} else {
		b.most = at
	}
	b.bytes, b.epoch, b.soft, b.reducedAt = max(boundKept*at, leastFlight), 0, false, now
}

// undo takes the last reduction back once all packets that led to it have arrived: they were only late.
func (b *bound) undo(n int) {
	if b.found += n; b.lost != 0 && b.found >= b.lost {
		b.bytes, b.most, b.epoch, b.lost = b.before[0], b.before[1], 0, 0
	}
}

// grow moves the bound along its curve when n bytes were acknowledged. stay is set while the sender has less data than
// it may send.
func (b *bound) grow(now, trip time.Duration, n int, stay bool) {
	passed := now - b.grownAt
	b.grownAt = now
	switch {
	case b.bytes == 0 || b.soft:
		return
	case b.epoch == 0:
		b.epoch, b.linear, b.most = now, b.bytes, max(b.most, b.bytes)
		b.steep = math.Cbrt((b.most - b.bytes) / boundPacket / boundCurve)
	case stay:
		b.epoch += passed
		return
	}
	t := (now - b.epoch + trip).Seconds() - b.steep
	curve := min(max(boundPacket*boundCurve*t*t*t+b.most, b.bytes), 1.5*b.bytes)
	gain := boundLinear
	if b.linear >= b.most {
		gain = 1
	}
	share := float64(n) / b.bytes
	b.linear += gain * boundPacket * share
	b.bytes = max(b.bytes+(curve-b.bytes)*share, min(b.linear, 1.5*b.bytes))
}

// soften lets a loose bound grow after a round.
func (b *bound) soften(product int) {
	if b.soft && b.bytes < float64(4*product) {
		b.bytes += max(b.bytes/16, basePacket)
		b.most = b.bytes
	}
}
