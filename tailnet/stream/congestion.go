package stream

import "time"

// An end decides how much it sends, and how fast, by a model of the path: the bytes it carries per second, and the round trip without
// queueing. The model is BBR's (Cardwell and others, "BBR: Congestion-Based Congestion Control", ACM Queue 2016), with its phases and
// gains. Unlike loss-based control, BBR does not fill the path's queues until packets are lost, nor does it take a lost packet for a full
// queue. Two things differ here. A round lasts at least shortRound, because on a short path a process is often not scheduled for several
// round trips. And a round that loses a twentieth of its packets bounds the bytes in flight, for queues that are shorter than the path.

const (
	startupGain = 2.77 // 4 ln 2: doubles the rate every round trip
	// sprintGain triples the rate while acknowledgements show that no queue grows. SUSS likewise more than doubles it (Arghavani and others,
	// "SUSS: Improving TCP Performance by Speeding Up Slow-Start", SIGCOMM 2024).
	sprintGain = 4.0
	drainGain  = 1 / startupGain
	windowGain = 2.0 // bytes in flight, in bandwidth-delay products: acknowledgements arrive late and in batches

	// firstFlight is how many bytes may be in flight before the path is known: ten packets for each of sixteen connections.
	firstFlight = 160 * basePacket
	// relayFlight is firstFlight on a path through a relay: the connections to it have their own congestion control and start slowly
	// enough. maxRelayFlight bounds the bytes in flight there: it is what the relay and the system's buffers before and after it hold.
	relayFlight    = 2 << 20
	maxRelayFlight = 12 << 20
	// unheardFlight is how many bytes may be in flight before anything has come back.
	unheardFlight = 32 * basePacket
	leastFlight   = 8 * basePacket
	// firstTrip is the assumed round trip before the first measurement.
	firstTrip = 50 * time.Millisecond

	// startup ends after queuedAcks consecutive acknowledgements of packets that waited on the path for more than half a round trip
	// plus longQueue.
	queuedAcks = 8
	longQueue  = 8 * time.Millisecond

	shortRound = 5 * time.Millisecond
	rateRounds = 10               // rounds over which the highest rate counts
	tripAge    = 10 * time.Second // how long the shortest round trip counts
	probeTrip  = 200 * time.Millisecond

	// pacingSlack is how far ahead of the rate packets may be sent, because timers fire late. It is also the longest burst.
	pacingSlack = time.Millisecond
	// lateAcks is how long the peer may hold back acknowledgements; see ackDelay. Until then, arrived bytes still count as in flight.
	lateAcks = 10 * time.Millisecond
)

type phase int

const (
	startup phase = iota
	drain
	cruise
)

// climbGain is the gain of cruise after a round trip that showed that the path carries more: a new path, or one with less cross traffic.
const climbGain = 2

// cycle holds the gains of cruise, one per round trip. The first shows whether the path carries more; the second drains the queue that
// this has built.
var cycle = [...]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

// congestion decides how much may be sent. All times are on the association's clock.
type congestion struct {
	limit   int // upper bound of inFlight, in bytes
	relayed bool
	heard   bool // something has come back

	inFlight int // bytes

	phase    phase
	rates    [rateRounds]float64 // the highest rate of each of the last rounds, in bytes per second
	round    int                 // index of rates
	roundEnd uint64              // the round ends when this much is delivered,
	roundAt  time.Duration       // and not before shortRound after this
	full     float64             // the rate against which startup measures growth
	flat     int                 // rounds without growth

	trip     time.Duration // the shortest round trip; 0 before the first
	tripAt   time.Duration
	probing  time.Duration // end of the period of reduced sending that measures the shortest round trip; 0 outside it
	probed   time.Duration // the shortest since that period began
	longest  time.Duration // round trip of this round and the previous one
	longer   time.Duration // of this round
	queued   int           // consecutive acknowledgements of packets that waited in a queue on the path
	window   int           // in startup
	overflow float64       // see crowded
	shrunk   bool          // in this round, by crowded
	step     int           // of cycle
	stepAt   time.Duration
	stepRate float64 // the rate when the step began
	climbing bool
	ceiling  int // bound of inFlight because of losses; 0 if there were few
	lost     int // bytes in this round
	acked    int // likewise
	nextSend time.Duration

	// For rate samples (draft-cheng-iccrg-delivery-rate-estimation).
	delivered   uint64 // bytes
	deliveredAt time.Duration
	firstSent   time.Duration
	idleUntil   uint64 // until this much is delivered, samples show the offered rate, not the path's; 0 if none do
}

// sample is the state at the moment a packet was sent.
type sample struct {
	delivered   uint64
	deliveredAt time.Duration
	firstSent   time.Duration
	offered     bool // less was offered than the path might carry
}

// restart forgets the path.
func (c *congestion) restart(relayed bool) {
	*c = congestion{
		limit: c.limit, relayed: relayed, heard: c.heard, inFlight: c.inFlight,
		delivered: c.delivered, deliveredAt: c.deliveredAt, firstSent: c.firstSent,
	}
}

func (c *congestion) first() int {
	switch {
	case !c.heard:
		return unheardFlight
	case c.relayed && c.overflow != 0:
		return leastFlight
	case c.relayed:
		return min(relayFlight, c.limit)
	}
	return min(firstFlight, c.limit)
}

// rate returns how many bytes per second the path carries; 0 while unknown.
func (c *congestion) rate() float64 {
	var best float64
	for _, r := range c.rates {
		best = max(best, r)
	}
	return best
}

// product returns how many bytes the path itself holds: the bandwidth-delay product.
func (c *congestion) product() int { return int(c.rate() * c.trip.Seconds()) }

// allowed returns how many bytes may be in flight.
func (c *congestion) allowed() int {
	limit := c.limit
	if c.relayed {
		limit = min(limit, maxRelayFlight)
	}
	if c.phase == startup {
		return min(max(c.window, c.first()), limit)
	}
	n := int(windowGain*float64(c.product()) + c.rate()*lateAcks.Seconds())
	if c.probing != 0 {
		n = c.product() / 2
	}
	if c.ceiling != 0 {
		n = min(n, c.ceiling)
	}
	return min(max(n, leastFlight), limit)
}

// pace returns how many bytes may be sent per second.
func (c *congestion) pace() float64 {
	rate := c.rate()
	switch c.phase {
	case startup:
		trip := c.trip
		if trip == 0 {
			trip = firstTrip
		}
		gain := startupGain
		if c.sprints() {
			gain = sprintGain
		}
		return gain * max(rate, float64(c.first())/trip.Seconds())
	case drain:
		return drainGain * rate
	}
	if c.climbing {
		return climbGain * rate
	}
	return cycle[c.step] * rate
}

// sprints reports whether startup may grow faster: no packet has waited on the path in this round. Through a relay, packets wait while the
// connections to it are still slow; the rate tells whether these still grow, and the relay holds what waits.
func (c *congestion) sprints() bool {
	if c.relayed {
		return c.heard && c.flat == 0 && c.lost == 0 && c.overflow == 0
	}
	return c.heard && c.trip > shortRound && c.lost == 0 && c.longest <= c.trip+c.trip/8+2*time.Millisecond
}

// maySend reports whether another packet may be sent now. If not, when is the time it may be, or 0 if that depends on an acknowledgement.
func (c *congestion) maySend(now time.Duration) (yes bool, when time.Duration) {
	if c.inFlight >= c.allowed() {
		return false, 0
	}
	if c.nextSend > now+pacingSlack {
		return false, c.nextSend
	}
	return true, 0
}

// sent records that a packet of n bytes was sent.
func (c *congestion) sent(now time.Duration, n int) sample {
	if c.inFlight == 0 {
		c.firstSent, c.deliveredAt = now, now
	}
	c.inFlight += n
	c.nextSend = max(c.nextSend, now-pacingSlack) + time.Duration(float64(n)/c.pace()*float64(time.Second))
	return sample{c.delivered, c.deliveredAt, c.firstSent, c.idleUntil != 0}
}

// measured reports whether startup may end because of losses. The rate of a sender that offered little says nothing about the path, unless
// the path has carried more than the first flight.
func (c *congestion) measured() bool {
	return c.phase == startup && c.rate() > 0 && (c.idleUntil == 0 || c.product() > firstFlight)
}

// idle records that more could have been sent before the next packet, but there was no data.
func (c *congestion) idle() {
	if c.inFlight < c.allowed() {
		c.idleUntil = max(c.delivered+uint64(c.inFlight), 1)
	}
}

// gone records that a packet of n bytes is no longer in flight; lost is set if it was lost, and not if it arrived.
func (c *congestion) gone(n int, lost bool) {
	c.inFlight -= n
	if lost {
		c.lost += n
		// Startup must not continue to the end of its round: it sends several times more than fits.
		if c.measured() && c.lost > max(c.acked/8, 16*basePacket) {
			c.crowded(2 * c.product())
		}
	}
}

// crowded reacts to packets that startup lost, on a path that held n bytes. A relay's queue is short, and overflows when its connection to
// the peer is younger than ours to the relay. That connection still grows: startup continues with a smaller window, until the rate has not
// grown from one overflow, which c.overflow records, to the next.
func (c *congestion) crowded(n int) {
	n = max(n, c.product(), leastFlight)
	switch {
	case c.relayed && c.shrunk:
		c.window = min(c.window, n)
	case c.relayed && c.rate() > c.overflow*1.25:
		c.overflow, c.shrunk, c.window = c.rate(), true, min(c.window, n)
	default:
		c.ceiling, c.phase = n, drain
	}
}

// deliver counts a packet that arrived. The caller calls update after the last packet of an acknowledgement.
func (c *congestion) deliver(now time.Duration, n int) {
	c.delivered += uint64(n)
	c.deliveredAt = now
	c.acked += n
}

// update processes an acknowledgement of n bytes. s is the sample of its latest packet, which was sent at sentAt. trip is the round trip, or 0
// if it was not measured.
func (c *congestion) update(now time.Duration, s sample, sentAt time.Duration, n int, trip time.Duration) {
	c.heard = true
	c.firstSent = sentAt
	if c.delivered >= c.idleUntil {
		c.idleUntil = 0
	}
	c.measureTrip(now, trip, s.offered)
	if c.phase == startup {
		c.window = max(c.window, c.first()) + n
		if c.sprints() {
			c.window += n
		}
	}
	took := max(sentAt-s.firstSent, now-s.deliveredAt)
	rate := float64(c.delivered-s.delivered) / took.Seconds()
	if took <= 0 || took < c.trip {
		rate = 0
	}
	newRound := s.delivered >= c.roundEnd && now-c.roundAt >= shortRound
	if newRound {
		c.endRound(now)
	}
	if rate > 0 && (!s.offered || rate > c.rate()) {
		c.rates[c.round] = max(c.rates[c.round], rate)
	}
	if newRound && !s.offered {
		c.grow()
	}
	c.advance(now)
}

// endRound begins a new round and evaluates the losses of the last one.
func (c *congestion) endRound(now time.Duration) {
	c.roundEnd, c.roundAt = c.delivered, now
	c.longest, c.longer = c.longer, 0
	if c.rates[c.round] > 0 { // a round without samples does not age older ones
		c.round = (c.round + 1) % rateRounds
		c.rates[c.round] = 0
	}
	if c.lost > c.acked/20 && c.lost >= 4*basePacket {
		// The path and its queue hold what arrived; the lost share exceeded them.
		share := min(max(1.0/2, float64(c.acked)/float64(c.acked+c.lost)), 7.0/8)
		held := int(share * float64(c.inFlight+c.lost))
		if c.measured() {
			c.crowded(held)
		} else {
			c.ceiling = max(held, c.product(), leastFlight)
		}
	} else if c.ceiling != 0 && c.ceiling < 4*c.product() {
		c.ceiling += max(c.ceiling/16, basePacket)
	}
	c.lost, c.acked, c.shrunk = 0, 0, false
}

// grow ends startup when the rate no longer grows.
func (c *congestion) grow() {
	if c.phase != startup {
		return
	}
	if rate := c.rate(); rate >= c.full*1.25 {
		c.full, c.flat = rate, 0
		return
	}
	if c.flat++; c.flat >= 3 {
		c.phase = drain
	}
}

func (c *congestion) measureTrip(now, trip time.Duration, offered bool) {
	if trip <= 0 {
		return
	}
	if c.trip == 0 || trip <= c.trip {
		c.trip, c.tripAt = trip, now
	}
	c.longer = max(c.longer, trip)
	c.longest = max(c.longest, trip)
	// Through a relay, packets wait while the connections to it are still slow.
	if trip <= c.trip*3/2+longQueue || offered || c.relayed {
		c.queued = 0
	} else if c.queued++; c.phase == startup && c.queued >= queuedAcks && c.rate() > 0 {
		c.phase = drain
	}
	switch {
	case c.probing == 0:
		if now-c.tripAt > tripAge && c.phase == cruise {
			c.probing, c.probed = now+max(probeTrip, 2*c.trip), trip
		}
	case now >= c.probing:
		c.probing, c.trip, c.tripAt = 0, min(c.probed, trip), now
	default:
		c.probed = min(c.probed, trip)
	}
}

// advance goes to the next phase when it is time.
func (c *congestion) advance(now time.Duration) {
	switch c.phase {
	case drain:
		if c.inFlight <= c.product() {
			c.phase, c.step, c.stepAt, c.stepRate = cruise, 2, now, c.rate()
		}
	case cruise:
		if now-c.stepAt < max(c.trip, shortRound) {
			return
		}
		rate := c.rate()
		// A higher rate takes a round trip to show: the step after the first one reveals what the first found.
		c.climbing = rate > c.stepRate*9/8 && c.longest <= c.trip*5/4+longQueue &&
			c.lost <= c.acked/50 && (c.climbing || c.step <= 1)
		if !c.climbing {
			c.step = (c.step + 1) % len(cycle)
		}
		c.stepAt, c.stepRate = now, rate
	}
}
