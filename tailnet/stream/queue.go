package stream

import "time"

// queue tells from round trips whether packets wait on the path, and whether others keep them waiting.
//
//	         a round's shortest trip is long              the queue is empty when we drain it
//	quiet ─────────────────────────────────▶ standing ───────────────────────────────────────▶ quiet
//	                                            │ no empty queue in crowdRounds: draining
//	                                            ▼
//	                                         draining: less than the path holds is in flight
//	                                            │ and still no empty queue: it is not ours
//	                                            ▼            every crowdAge, or when the queue is empty
//	                                         crowded ─────────────────────────────────────────▶ draining, quiet
type queue struct {
	floor   time.Duration // the shortest round trip of the last floorAge, or longer; 0 before the first
	floorAt time.Duration
	emptyAt time.Duration // when a round trip last was as short as the path

	// The shortest of the last stretch, which is an eighth of a round trip, and of the one before: one packet that was
	// late says nothing.
	recent, previous time.Duration
	stretchAt        time.Duration

	shortest time.Duration // of this round
	standing bool          // no packet of the last round found an empty queue

	drainAt time.Duration // when draining began; 0 while it does not
	drained time.Duration // when it last ended
	crowded bool          // others keep the queue
}

const (
	// floorAge is how long the shortest round trip counts as the path's. It is longer than tripAge, because others may
	// keep a queue for longer.
	floorAge = time.Minute
	// emptyTrip is by which part of it a round trip may be longer than the path's, and emptySlack by how much at least.
	// Queues of a tenth of the path must be seen, and timers that fire late must not count.
	emptyTrip  = 16
	emptySlack = time.Millisecond
	// standingSlack is how much longer trips are if packets stand in a queue: less than the shortest queue that was
	// measured (decision 38), which is 10 ms.
	standingSlack = 2 * time.Millisecond
	// crowdRounds is after how many rounds without an empty queue an end drains it: a cycle, whose second step would
	// have emptied it if it were its own (decision 38).
	crowdRounds = 8
	// crowdAge is how often an end looks whether others still keep the queue. It costs a crowded end a few round trips.
	// It was not compared with others (decision 38).
	crowdAge = 8 * time.Second
)

// slack returns the longest round trip that counts as that of an empty queue.
func (q *queue) slack() time.Duration { return q.floor + max(q.floor/emptyTrip, emptySlack) }

// full reports whether packets have been waiting for an eighth of a round trip at least: those that were lost now did
// not fit the queue.
func (q *queue) full() bool { return q.floor != 0 && min(q.recent, q.previous) > q.slack() }

// measure records a round trip. Outside cruise, the queue is the sender's own.
func (q *queue) measure(now, trip time.Duration, cruising bool) {
	if q.floor == 0 || trip <= q.floor || now-q.floorAt > floorAge {
		q.floor, q.floorAt = trip, now
	}
	if !cruising || trip <= q.slack() {
		q.emptyAt = now
	}
	if q.shortest == 0 || trip < q.shortest {
		q.shortest = trip
	}
	if now-q.stretchAt > max(q.floor/8, emptySlack) {
		q.previous, q.recent, q.stretchAt = q.recent, trip, now
	} else {
		q.recent = min(q.recent, trip)
	}
}

// endRound is called after each round. trip is the path's, and flight how long it takes to send what is in flight. It
// reports whether the sender has just found out that others keep the queue.
func (q *queue) endRound(now, trip, flight time.Duration, cruising bool) (crowded bool) {
	q.standing = q.shortest > q.slack()+standingSlack
	q.shortest = 0
	if !cruising {
		return false
	}
	trip = max(trip, shortRound)
	switch {
	case now-q.emptyAt < 2*trip:
		q.crowded, q.drainAt = false, 0
	case q.drainAt != 0:
		if now-q.drainAt > 3*trip+flight {
			crowded = !q.crowded
			q.drainAt, q.drained, q.crowded = 0, now, true
		}
	case now-max(q.emptyAt, q.drained) > crowdRounds*trip && (!q.crowded || now-q.drained > crowdAge):
		q.drainAt = now
	}
	return crowded
}
