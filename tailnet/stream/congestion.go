package stream

import "time"

// How much is sent, and how fast, follows a model of the path: how many bytes it carries in a second, and how long one takes that waits
// for nothing. It is BBR's (Cardwell and others, "BBR: Congestion-Based Congestion Control", ACM Queue 2016; the phases and gains are
// from there), which neither fills the path's queues, as others do until packets are lost, nor takes a lost packet for a full queue.
// Two things differ. A round lasts at least shortRound, since on a short path a process is often not scheduled for several round trips; and a
// round that loses a twentieth of its packets bounds what may be on its way, for queues that are shorter than the path.

const (
	startupGain = 2.77 // 4 ln 2: doubles the rate each round trip
	// While acknowledgements show that no queue grows, it is tripled, as SUSS does more than double it (Arghavani and others, "SUSS: Improving TCP
	// Performance by Speeding Up Slow-Start", SIGCOMM 2024).
	sprintGain = 4.0
	drainGain  = 1 / startupGain
	windowGain = 2.0 // on its way, in products of rate and round trip: acknowledgements come late and together

	// firstFlight is what may be on its way before the path is known, in bytes: ten packets for each of sixteen connections.
	firstFlight = 160 * basePacket
	// relayFlight is firstFlight on a path through a relay: the connections to it have congestion control of their own, and begin slowly
	// enough. maxRelayFlight is what is on its way there at most: what the relay and the system's buffers before and behind it hold.
	relayFlight    = 2 << 20
	maxRelayFlight = 8 << 20
	// unheardFlight is what may be on its way before anything came back.
	unheardFlight = 32 * basePacket
	leastFlight   = 8 * basePacket
	// firstTrip is how long the round trip is assumed to take before one was measured.
	firstTrip = 50 * time.Millisecond

	// startup ends when so many acknowledgements in a row tell of packets that have waited on the path: for half a round trip
	// and longQueue.
	queuedAcks = 8
	longQueue  = 8 * time.Millisecond

	shortRound = 5 * time.Millisecond
	rateRounds = 10               // for so many rounds the highest rate counts
	tripAge    = 10 * time.Second // for so long the shortest round trip counts
	probeTrip  = 200 * time.Millisecond

	// pacingSlack is how far ahead of the rate packets may be sent, since timers are late. It is also the longest burst.
	pacingSlack = time.Millisecond
	// lateAcks is for how long acknowledgements may be held back: see ackDelay. What arrives meanwhile is on its way, as far as is known.
	lateAcks = 10 * time.Millisecond
)

type phase int

const (
	startup phase = iota
	drain
	cruise
)

// climbGain is the gain of cruise when the last round trip has shown that the path carries more: another path, or one that others have left.
const climbGain = 2

// cycle is the gains of cruise, each for a round trip: more shows whether the path carries more, less lets the queue run empty that
// this has made.
var cycle = [...]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

// congestion decides how much is sent. All times are on the association's clock.
type congestion struct {
	limit   int // never is more on its way, in bytes
	relayed bool
	heard   bool // something came back

	inFlight int // bytes

	phase    phase
	rates    [rateRounds]float64 // the highest rate of each of the last rounds, in bytes a second
	round    int                 // index of rates
	roundEnd uint64              // the round ends when this much is delivered,
	roundAt  time.Duration       // and not before shortRound after this
	full     float64             // the rate by which startup measures growth
	flat     int                 // rounds without growth

	trip     time.Duration // the shortest round trip; 0 before the first
	tripAt   time.Duration
	probing  time.Duration // until when less is sent, to measure the shortest round trip; 0 when not
	probed   time.Duration // the shortest since that began
	longest  time.Duration // round trip of this round and the one before
	longer   time.Duration // of this round
	queued   int           // acknowledgements in a row that waited in a queue on the path
	window   int           // in startup
	step     int           // of cycle
	stepAt   time.Duration
	stepRate float64 // the rate when the step began
	climbing bool
	ceiling  int // what may be on its way by losses; 0 if there were few
	lost     int // bytes in this round
	acked    int // likewise
	nextSend time.Duration

	// For the samples of the rate (draft-cheng-iccrg-delivery-rate-estimation).
	delivered   uint64 // bytes
	deliveredAt time.Duration
	firstSent   time.Duration
	idleUntil   uint64 // until this much is delivered, samples show what was offered, not what the path carries; 0 if not
}

// sample is what a packet remembers of the moment in which it was sent.
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
	case c.relayed:
		return min(relayFlight, c.limit)
	}
	return min(firstFlight, c.limit)
}

// rate is how many bytes the path carries in a second; 0 while that is not known.
func (c *congestion) rate() float64 {
	var best float64
	for _, r := range c.rates {
		best = max(best, r)
	}
	return best
}

// product is how many bytes the path itself holds.
func (c *congestion) product() int { return int(c.rate() * c.trip.Seconds()) }

// allowed is how many bytes may be on their way.
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

// pace is how many bytes are sent in a second.
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

// sprints reports whether startup may grow faster: nothing has waited on the path in this round.
func (c *congestion) sprints() bool {
	return c.heard && !c.relayed && c.trip > shortRound && c.lost == 0 && c.longest <= c.trip+c.trip/8+2*time.Millisecond
}

// maySend reports whether another packet may be sent now, and otherwise when, or 0 if that depends on an acknowledgement.
func (c *congestion) maySend(now time.Duration) (yes bool, when time.Duration) {
	if c.inFlight >= c.allowed() {
		return false, 0
	}
	if c.nextSend > now+pacingSlack {
		return false, c.nextSend
	}
	return true, 0
}

// sent takes in that a packet of n bytes is on its way.
func (c *congestion) sent(now time.Duration, n int) sample {
	if c.inFlight == 0 {
		c.firstSent, c.deliveredAt = now, now
	}
	c.inFlight += n
	c.nextSend = max(c.nextSend, now-pacingSlack) + time.Duration(float64(n)/c.pace()*float64(time.Second))
	return sample{c.delivered, c.deliveredAt, c.firstSent, c.idleUntil != 0}
}

// idle is called when more might be sent and there is nothing.
func (c *congestion) idle() {
	if c.inFlight < c.allowed() {
		c.idleUntil = max(c.delivered+uint64(c.inFlight), 1)
	}
}

// gone takes in that a packet is not on its way any more; lost says why.
func (c *congestion) gone(n int, lost bool) {
	c.inFlight -= n
	if lost {
		c.lost += n
		// Startup must not go on until its round is over: it sends several times more than fits.
		if c.phase == startup && c.rate() > 0 && c.lost > max(c.acked/8, 16*basePacket) {
			c.ceiling = max(2*c.product(), leastFlight)
			c.phase = drain
		}
	}
}

// deliver counts a packet that arrived. update follows for the last one of an acknowledgement.
func (c *congestion) deliver(now time.Duration, n int) {
	c.delivered += uint64(n)
	c.deliveredAt = now
	c.acked += n
}

// update takes in an acknowledgement: s is the sample of the latest packet of it, which was sent at sentAt, n how many bytes it told of, and
// trip the round trip, 0 if it was not measured.
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

// endRound begins a new round, and judges the losses of the last.
func (c *congestion) endRound(now time.Duration) {
	c.roundEnd, c.roundAt = c.delivered, now
	c.longest, c.longer = c.longer, 0
	if c.rates[c.round] > 0 { // a round in which nothing was learnt does not make older ones count less
		c.round = (c.round + 1) % rateRounds
		c.rates[c.round] = 0
	}
	if c.lost > c.acked/20 && c.lost >= 4*basePacket {
		// What arrived is what the path and its queue hold; the lost share is what they do not.
		held := min(7.0/8, float64(c.acked)/float64(c.acked+c.lost))
		c.ceiling = max(int(held*float64(c.inFlight+c.lost)), c.product(), leastFlight)
		if c.phase == startup && c.rate() > 0 {
			c.phase = drain
		}
	} else if c.ceiling != 0 && c.ceiling < 4*c.product() {
		c.ceiling += max(c.ceiling/16, basePacket)
	}
	c.lost, c.acked = 0, 0
}

// grow ends startup when the rate does not grow any more.
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
	// Through a relay packets wait while the connections to it are still slow.
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
		// A round trip passes before a higher rate shows: the step after the first one tells what that has found.
		c.climbing = rate > c.stepRate*9/8 && c.longest <= c.trip*5/4+longQueue &&
			c.lost <= c.acked/50 && (c.climbing || c.step <= 1)
		if !c.climbing {
			c.step = (c.step + 1) % len(cycle)
		}
		c.stepAt, c.stepRate = now, rate
	}
}
