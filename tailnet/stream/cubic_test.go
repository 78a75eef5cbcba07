package stream_test

import (
	"math"
	"time"
)

// cubic is a model of a TCP sender that always has data: CUBIC (RFC 9438) with selective acknowledgements, HyStart's
// delay test (RFC 9406), no pacing, and an acknowledgement for each packet. Windows are in packets.
type cubic struct {
	w    *wire
	base time.Duration // the shortest round trip
	got  int64

	window, threshold float64
	most              float64 // the window before the last reduction
	epoch             time.Time
	k, estimate       float64 // RFC 9438, section 4.2 and 4.3
	inFlight          int
	next, highest     int // number of the next packet; of the latest that was acknowledged
	recovered         int // losses of packets before it belong to the last reduction
	roundEnd          int
	roundTrip         time.Duration // the shortest of this round
	lost              int
	heard             time.Time
}

const (
	cubicPacket = 1448
	cubicHeader = 52
	cubicC      = 0.4
	cubicBeta   = 0.7
)

func (w *wire) cubic() *cubic {
	c := &cubic{w: w, window: 10, threshold: math.Inf(1), highest: -1}
	c.fill()
	c.watch()
	return c
}

func (c *cubic) bytes() int64              { return c.got }
func (c *cubic) packets() (sent, lost int) { return c.next, c.lost }

// watch is the retransmission timer.
func (c *cubic) watch() {
	c.w.at(time.Now().Add(200*time.Millisecond), func() {
		if time.Since(c.heard) > max(time.Second, 2*c.base) && c.inFlight > 0 {
			c.lost += c.inFlight
			c.threshold, c.window, c.inFlight, c.highest = max(c.window*cubicBeta, 2), 1, 0, c.next-1
			c.fill()
		}
		c.watch()
	})
}

func (c *cubic) fill() {
	for float64(c.inFlight) < c.window {
		number, sent := c.next, time.Now()
		c.next++
		c.inFlight++
		if at, ok := c.w.send(cubicPacket + cubicHeader); ok {
			c.w.at(at.Add(c.w.trip/2), func() { c.acknowledge(number, sent) })
		}
	}
}

func (c *cubic) acknowledge(number int, sent time.Time) {
	if number <= c.highest {
		return // before a timeout
	}
	now := time.Now()
	c.heard = now
	trip := now.Sub(sent)
	if c.base == 0 || trip < c.base {
		c.base = trip
	}
	c.got += cubicPacket
	lost := number - c.highest - 1
	c.highest = number
	c.inFlight -= 1 + lost
	c.lost += lost
	switch {
	case lost > 0:
		if number-lost >= c.recovered {
			c.reduce()
		}
	case number < c.recovered: // no growth in recovery
	case c.window < c.threshold:
		c.start(number, trip)
	default:
		c.avoid(now, trip)
	}
	c.fill()
}

// start is slow start, until the shortest round trip of a round shows a queue.
func (c *cubic) start(number int, trip time.Duration) {
	c.window++
	if number >= c.roundEnd {
		c.roundEnd, c.roundTrip = c.next, 0
	}
	if c.roundTrip == 0 || trip < c.roundTrip {
		c.roundTrip = trip
	}
	if c.window >= 16 && c.roundTrip >= c.base+min(max(c.base/8, 4*time.Millisecond), 16*time.Millisecond) {
		c.threshold = c.window
	}
}

func (c *cubic) reduce() {
	c.recovered = c.next
	if c.window < c.most {
		c.most = c.window * (1 + cubicBeta) / 2
	} else {
		c.most = c.window
	}
	c.window = max(c.window*cubicBeta, 2)
	c.threshold = c.window
	c.epoch = time.Time{}
}

func (c *cubic) avoid(now time.Time, trip time.Duration) {
	if c.epoch.IsZero() {
		c.epoch, c.estimate = now, c.window
		c.most = max(c.most, c.window)
		c.k = math.Cbrt((c.most - c.window) / cubicC)
	}
	t := (now.Sub(c.epoch) + trip).Seconds()
	since := t - c.k
	target := min(max(cubicC*since*since*since+c.most, c.window), 1.5*c.window)
	alpha := 3 * (1 - cubicBeta) / (1 + cubicBeta)
	if c.estimate >= c.most {
		alpha = 1
	}
	c.estimate += alpha / c.window
	if target < c.estimate {
		c.window = max(c.window, c.estimate)
		return
	}
	c.window += (target - c.window) / c.window
}
