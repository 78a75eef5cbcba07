package stream

import "time"

// congestion is the controller that streams use. It decides by a model of the path: the bytes it carries per second,
// and the round trip without queueing. The model is BBR's (Cardwell and others, "BBR: Congestion-Based Congestion
// Control", ACM Queue 2016), with its phases and gains. Unlike loss-based control, BBR does not fill the path's queues
// until packets are lost, nor does it take a lost packet for a full queue. A round lasts at least shortRound here,
// because on a short path a process is often not scheduled for several round trips.
//
//	          the rate stops growing, packets wait,
//	          or a twentieth of a round is lost               what is in flight fits the path
//	 startup ───────────────────────────────────────▶ drain ───────────────────────────────────▶ cruise ◀─┐
//	  ▲ four times the rate while no packet waits       1/2.77 of the rate                         │      │ 200 ms with half of
//	  │ (sprint), 2.77 times otherwise                                                             │      │ the path in flight:
//	  │                                                                                            ├──────┘ every 10 s without
//	  └── the path changed, or was silent                                                          │        a short round trip
//	                                                                                               ▼
//	   steps of cruise, a round trip each:  1.25 (probe) ─▶ 0.75 (drain) ─▶ 1 ─▶ 1 ─▶ … six to nine times ─▶ 1.25 …
//	                                                          └─ the probe found more: 2 (climb) until it finds no more
//
// BBR alone leaves loss-based senders nothing on a short queue. So two parts leave room for others (decision 38):
//
//   - A bound of what is in flight falls when a full queue loses packets, and is probed again as slowly as CUBIC does (bound.go). Losses while the
// queue is empty are random, and lower nothing.
//   - Where packets stand in a queue (queue.go), an end keeps no more in flight than the path holds, and forgets rates that it no longer has. If the
// queue stays although this end drains it, others keep it; then the end follows the bound alone, because with less it
// would get nothing.
//
// Neither applies to paths through a relay. Packets wait and are lost there while the relay's TCP connections are
// young; these share with others as TCP does.

const (
	startupGain = 2.77 // 4 ln 2: doubles the rate every round trip
	// sprintGain triples the rate while acknowledgements show that no queue grows. SUSS likewise more than doubles it
	// (Arghavani and others, "SUSS: Improving TCP Performance by Speeding Up Slow-Start", SIGCOMM 2024).
	sprintGain = 4.0
	drainGain  = 1 / startupGain
	// windowGain is the bytes in flight, in bandwidth-delay products: acknowledgements arrive late and in batches
	// (BBR). Through a relay, decision 38 has a row for 1.5.
	windowGain = 2.0

	// firstFlight is how many bytes may be in flight before the path is known: ten packets for each of sixteen
	// connections.
	firstFlight = 160 * basePacket
	// relayFlight is firstFlight on a path through a relay: the connections to it have their own congestion control and
	// start slowly enough (decision 38: "first flight of other paths"). maxRelayFlight bounds the bytes in flight
	// there: it is what the relay and the system's buffers before and after it hold (decision 37).
	relayFlight    = 2 << 20
	maxRelayFlight = 12 << 20
	// unheardFlight is how many bytes may be in flight before anything has come back, and leastFlight always. Neither
	// was compared with others (decision 38).
	unheardFlight = 32 * basePacket
	leastFlight   = 8 * basePacket
	// firstTrip is the assumed round trip before the first measurement. It was not compared either.
	firstTrip = 50 * time.Millisecond

	// startup ends after queuedAcks consecutive acknowledgements of packets that waited on the path for more than half
	// a round trip plus longQueue. HyStart++ likewise asks for eight samples, and for 4 to 16 ms (RFC 9406, section
	// 4.3).
	queuedAcks = 8
	longQueue  = 8 * time.Millisecond

	shortRound = 5 * time.Millisecond   // see congestion
	rateRounds = 10                     // rounds over which the highest rate counts (BBR: 6 to 10)
	tripAge    = 10 * time.Second       // how long the shortest round trip counts (BBR)
	probeTrip  = 200 * time.Millisecond // (BBR)
	// staleRate is what a round with a standing queue leaves of earlier rates. Two streams that both remember the rates
	// of their best rounds keep a queue, and their shares: see "two streams" in decision 38.
	staleRate = 0.95
	// standingGain replaces the gain of 1 while packets stand in a queue, as BBRv3 paces below its rate while it
	// cruises.
	standingGain = 0.9
	// crowdedGain paces an end in a crowd, whose bound is what limits it. With 2 it lost twice as many packets.
	crowdedGain = 1.5
	// lostShare is the part of a round that a full queue must have lost, and lostLeast how many bytes, until the bound
	// falls: others lose packets of that queue as well, and with every single packet a paced sender falls behind them.
	lostShare = 0.02
	lostLeast = 3 * basePacket

	// pacingSlack is how far ahead of the rate packets may be sent, because timers fire late. It is also the longest
	// burst.
	pacingSlack = time.Millisecond
	// lateAcks is how long the peer may hold back acknowledgements; see ackDelay. Until then, arrived bytes still count
	// as in flight.
	lateAcks = 10 * time.Millisecond
)

type phase int

const (
	startup phase = iota
	drain
	cruise
)

// climbGain is the gain of cruise after a round trip that showed that the path carries more: a new path, or one with
// less cross traffic. It doubles the rate as startup does, and was not compared with others (decision 38).
const climbGain = 2

// cycle holds the gains of cruise, one per round trip (BBR). The first shows whether the path carries more; the second
// drains the queue that this has built.
var cycle = [...]float64{1.25, 0.75, 1, 1, 1, 1, 1, 1}

// cycleExtra is how many more steps a cycle may have, less one: streams that probe at the same time learn nothing about
// each other.
const cycleExtra = 4

// congestion implements controller.
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
	overflow float64       // see overflowed
	shrunk   bool          // in this round, by overflowed
	step     int           // of cycle
	stepAt   time.Duration
	stepRate float64 // the rate when the step began
	stepBest float64 // the highest rate of this step, and of the one before
	stepPast float64
	extra    int // steps of this cycle beyond len(cycle)
	climbing bool
	bound    bound
	queue    queue
	lost     int // bytes in this round
	dropped  int // those of them that a full queue lost
	acked    int // likewise in this round
	nextSend time.Duration

	// For rate samples (draft-cheng-iccrg-delivery-rate-estimation).
	delivered   uint64 // bytes
	deliveredAt time.Duration
	firstSent   time.Duration
	idleUntil   uint64 // until this much is delivered, samples show the offered rate, not the path's; 0 if none do
}

// restart forgets the path.
func (c *congestion) restart(relayed bool) {
	*c = congestion{
		limit: c.limit, relayed: relayed, heard: c.heard, inFlight: c.inFlight,
		delivered: c.delivered, deliveredAt: c.deliveredAt, firstSent: c.firstSent,
	}
}

func (c *congestion) hear()  { c.heard = true }
func (c *congestion) clear() { c.inFlight = 0 }

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
	limited := c.bound.bytes != 0
	switch {
	case c.probing != 0:
		n, limited = c.product()/2, false
	case c.queue.drainAt != 0:
		n = c.product() * 3 / 4
	case c.queue.crowded && limited:
		n = int(c.bound.bytes)
	case c.queue.standing && c.step != 0 && !c.climbing && !c.relayed:
		n = c.product()
	}
	if limited {
		n = min(n, int(c.bound.bytes))
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
	if c.queue.crowded {
		return crowdedGain * rate
	}
	gain := cycle[min(c.step, len(cycle)-1)]
	if gain == 1 && c.queue.standing && !c.relayed {
		gain = standingGain
	}
	return gain * rate
}

// sprints reports whether startup may grow faster: no packet has waited on the path in this round. Through a relay,
// packets wait while the connections to it are still slow; the rate tells whether these still grow, and the relay holds
// what waits.
func (c *congestion) sprints() bool {
	if c.relayed {
		return c.heard && c.flat == 0 && c.lost == 0 && c.overflow == 0
	}
	return c.heard && c.trip > shortRound && c.lost == 0 && c.longest <= c.trip+c.trip/8+2*time.Millisecond
}

func (c *congestion) maySend(now time.Duration) (yes bool, when time.Duration) {
	if c.inFlight >= c.allowed() {
		return false, 0
	}
	if c.nextSend > now+pacingSlack {
		return false, c.nextSend
	}
	return true, 0
}

func (c *congestion) sent(now time.Duration, n int) sample {
	if c.inFlight == 0 {
		c.firstSent, c.deliveredAt = now, now
	}
	c.inFlight += n
	c.nextSend = max(c.nextSend, now-pacingSlack) + time.Duration(float64(n)/c.pace()*float64(time.Second))
	return sample{c.delivered, c.deliveredAt, c.firstSent, c.idleUntil != 0}
}

// measured reports whether startup may end because of losses. The rate of a sender that offered little says nothing
// about the path, unless the path has carried more than the first flight.
func (c *congestion) measured() bool {
	return c.phase == startup && c.rate() > 0 && (c.idleUntil == 0 || c.product() > firstFlight)
}

func (c *congestion) idle() {
	if c.inFlight < c.allowed() {
		c.idleUntil = max(c.delivered+uint64(c.inFlight), 1)
	}
}

func (c *congestion) forget(n int) { c.inFlight -= n }
func (c *congestion) found(n int)  { c.bound.undo(n) }

func (c *congestion) lose(now, sentAt time.Duration, n int) {
	c.inFlight -= n
	c.lost += n
	switch {
	case c.measured() && c.lost > max(c.acked/8, 16*basePacket):
		// Startup must not continue to the end of its round: it sends several times more than fits.
		c.overflowed(2 * c.product())
	case c.phase == startup || c.relayed || sentAt <= c.bound.reducedAt || !c.queue.full():
	default:
		c.dropped += n
		if c.dropped >= lostLeast && float64(c.dropped) > lostShare*float64(max(c.acked, c.inFlight)) {
			c.bound.reduce(now, c.inFlight+c.lost, c.dropped)
			c.dropped = 0
		}
	}
}

// overflowed reacts to packets that startup lost, on a path that held n bytes. A relay's queue is short, and overflows
// when its connection to the peer is younger than ours to the relay. That connection still grows: startup continues
// with a smaller window, until the rate has not grown from one overflow, which c.overflow records, to the next.
func (c *congestion) overflowed(n int) {
	n = max(n, c.product(), leastFlight)
	switch {
	case c.relayed && c.shrunk:
		c.window = min(c.window, n)
	case c.relayed && c.rate() > c.overflow*1.25:
		c.overflow, c.shrunk, c.window = c.rate(), true, min(c.window, n)
	default:
		c.bound.loosely(n)
		c.phase = drain
	}
}

func (c *congestion) deliver(now time.Duration, n int) {
	c.inFlight -= n
	c.delivered += uint64(n)
	c.deliveredAt = now
	c.acked += n
}

func (c *congestion) update(now time.Duration, s sample, sentAt time.Duration, n int, trip time.Duration) {
	c.heard = true
	c.firstSent = sentAt
	if c.delivered >= c.idleUntil {
		c.idleUntil = 0
	}
	c.measureTrip(now, trip, s.offered)
	if trip > 0 {
		c.queue.measure(now, trip, c.phase == cruise)
		c.bound.grow(now, trip, n,
			c.idleUntil != 0 || c.inFlight+n < int(c.bound.bytes) && c.bound.bytes > 3*float64(c.product()))
	}
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
	if !s.offered {
		c.stepBest = max(c.stepBest, rate)
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
		switch {
		case c.measured():
			c.overflowed(held)
		case c.bound.bytes == 0 || c.bound.soft:
			c.bound.loosely(max(held, c.product(), leastFlight))
		}
	} else {
		c.bound.soften(c.product())
	}
	c.lost, c.dropped, c.acked, c.shrunk = 0, 0, 0, false
	if !c.relayed {
		c.endQueue(now)
	}
}

// endQueue evaluates the queue of the last round.
func (c *congestion) endQueue(now time.Duration) {
	var flight time.Duration
	if rate := c.rate(); rate > 0 {
		flight = time.Duration(float64(c.inFlight) / rate * float64(time.Second))
	}
	if c.queue.endRound(now, c.trip, flight, c.phase == cruise) {
		c.bound.begin(c.product())
	}
	if c.queue.standing && !c.queue.crowded && c.phase == cruise {
		for i := range c.rates {
			c.rates[i] *= staleRate
		}
	}
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
		if now-c.tripAt > tripAge && c.phase == cruise && !c.queue.crowded {
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
			c.phase, c.step, c.stepAt, c.stepRate, c.stepPast, c.stepBest = cruise, 2, now, c.rate(), c.rate(), 0
		}
	case cruise:
		if now-c.stepAt < max(c.trip, shortRound) {
			return
		}
		// A higher rate takes a round trip to show: the step after the first one reveals what the first found.
		rate := c.rate()
		c.climbing = (rate > c.stepRate*9/8 || c.stepBest > c.stepPast*9/8) && c.longest <= c.trip*5/4+longQueue &&
			c.lost <= c.acked/50 && (c.climbing || c.step <= 1)
		if !c.climbing {
			c.step++
		}
		if c.step >= len(cycle)+c.extra {
			// The bytes delivered so far are as good as a random number, and the same in each run of a test.
			c.step, c.extra = 0, int(c.delivered/basePacket*2654435761>>16%cycleExtra)
		}
		c.stepAt, c.stepRate, c.stepPast, c.stepBest = now, rate, c.stepBest, 0
	}
}
