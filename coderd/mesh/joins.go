package mesh

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// For each processor of this server, fewJoins agents join at one time however busy it is, up to manyJoins while it
	// is not, and queuedJoins more wait for their turn. A join costs the server about 10 ms, and takes longer than
	// that because of the way to the agent.
	fewJoins    = 4
	manyJoins   = 64
	queuedJoins = 512
	// joinRate is how many agents a processor is assumed to serve each second when agents begin to wait. What is
	// measured replaces it with the time constant joinMemory. The first turns take long, because a server that has just
	// started opens its connections to the database then; who was refused for them alone would return long after the
	// others.
	joinRate   = 128
	joinMemory = 2 * time.Second
	// joinTime is how long an agent may take from its turn to the beginning of its stream. Then the next one's turn
	// comes: the agent may be unable to reach this server's node.
	joinTime = 5 * time.Second
	// joinPatience is how long an agent waits for its turn, and then again with its old place. Agents wait ten seconds
	// for the answer.
	joinPatience = 8 * time.Second
	// soon is the shortest time after which to return: the header has whole seconds.
	soon = time.Second
	// joinCalm is how long no agent must have waited before the server starts from few turns again.
	joinCalm = time.Second
	// maxReturn is the latest time for which a refused agent is asked to return.
	maxReturn = 15 * time.Second
	// joinTick is how often the server looks whether it is busy while agents wait.
	joinTick = 50 * time.Millisecond
	// A server is busy if busyShare of the goroutines that could run have waited for busyWait or longer.
	busyWait  = 20 * time.Millisecond
	busyShare = 0.1
)

// joins admits agents as fast as this server can serve them. After a restart all agents return at one moment, and each
// needs milliseconds of the server's time: for its connection to the coordinator, for one to the relay, for a
// WireGuard handshake, for its manifest and its stream. If all of them got a share of that time, each would wait for
// all others, and begin again what takes too long, which makes more work.
//
// So agents get turns. A turn ends when the agent's stream has begun. Who waits is let in first, up to a number that
// grows while the server has time and is halved when it has none. Agents whose turn would not come soon are refused
// before they have cost more than their authentication, and are told when to return: each later than the one before,
// at a rate that keeps the queue filled.
//
// An agent that has waited as long as it can keeps its place, and returns for it. Without that, the last agents of a
// server that needs a little longer than joinPatience would begin anew at the end of the queue, while the server idles.
//
// An agent whose stream goes on, and has only lost its connection to the coordinator, needs no turn.
type joins struct {
	few, many, most int
	busy            func() bool // whether this server was busy since the last call; never called concurrently
	log             *slog.Logger

	mu       sync.Mutex // guards everything below
	level    int        // how many may join at one time: few to many
	current  int        // how many do
	turns    map[uuid.UUID]*turn
	queue    []*turn                 // by since
	places   map[uuid.UUID]time.Time // since when agents wait whose patience has ended; until no agent waits
	streams  map[uuid.UUID]int       // that agents have open
	watching bool                    // watch will be called
	closed   bool
	storm    storm
	calm     time.Time // when the last storm ended
	rate     float64   // turns that begin in a second while agents wait
	booked   time.Time // for which the last refused agent was asked to return
}

// storm is a time in which agents wait.
type storm struct {
	began             time.Time
	admitted, refused int

	measured time.Time // when the rate was
	before   int       // admitted by then
}

// turn is the turn of one agent, or its place in the queue.
type turn struct {
	agent  uuid.UUID
	since  time.Time     // when the agent came first
	users  int           // connections that wait for it or have it
	begun  chan struct{} // closed when it begins
	active bool          // it has begun
	end    *time.Timer   // nil until then
}

func newJoins(processors int, busy func() bool, log *slog.Logger) *joins {
	return &joins{
		few: fewJoins * processors, many: manyJoins * processors, most: queuedJoins * processors, busy: busy, log: log,
		level: fewJoins * processors, turns: map[uuid.UUID]*turn{}, places: map[uuid.UUID]time.Time{},
		streams: map[uuid.UUID]int{},
		rate:    float64(joinRate * processors),
	}
}

// enter blocks until it is the agent's turn, for joinPatience at most. The caller calls leave when the agent's
// connection has ended. The error is the fault Unavailable with the reason fault.Busy and the time after which to
// return.
func (j *joins) enter(ctx context.Context, agent uuid.UUID) (leave func(), err error) {
	t, err := j.place(agent)
	if t == nil {
		return func() {}, err
	}
	leave = sync.OnceFunc(func() { j.leave(t) })
	patience := time.NewTimer(joinPatience)
	defer patience.Stop()
	select {
	case <-t.begun:
		return leave, nil
	case <-patience.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		leave()
		return nil, ctx.Err()
	}
	if err := j.keep(t); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// place returns the agent's turn or its place in the queue, nil if it needs none.
func (j *joins) place(agent uuid.UUID) (*turn, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.streams[agent] > 0 {
		return nil, nil
	}
	t := j.turns[agent] // of another connection of the same agent
	switch {
	case t != nil:
	case len(j.queue) == 0 && j.current < j.level:
		t = j.add(agent)
		j.begin(t)
	case j.places[agent].IsZero() && (len(j.queue) >= j.most || j.until(len(j.queue)) > joinPatience):
		return nil, j.refusal()
	default:
		t = j.add(agent)
		j.line(t)
		if !j.watching {
			if time.Since(j.calm) >= joinCalm {
				j.level = j.few
			}
			now := time.Now()
			j.watching, j.storm = true, storm{began: now, measured: now}
			j.rate = joinRate * float64(j.few) / fewJoins
			j.busy() // from now on
			time.AfterFunc(joinTick, j.watch)
		}
	}
	t.users++
	return t, nil
}

func (j *joins) add(agent uuid.UUID) *turn {
	t := &turn{agent: agent, since: time.Now(), begun: make(chan struct{})}
	if since, ok := j.places[agent]; ok {
		t.since = since
		delete(j.places, agent)
	}
	j.turns[agent] = t
	return t
}

// line queues a turn. Called with mu held.
func (j *joins) line(t *turn) {
	at := len(j.queue)
	for at > 0 && j.queue[at-1].since.After(t.since) {
		at--
	}
	j.queue = slices.Insert(j.queue, at, t)
}

// keep keeps the place of an agent whose patience has ended, and returns the error that has it return for it, or nil if
// its turn has just begun.
func (j *joins) keep(t *turn) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t.active {
		return nil
	}
	j.places[t.agent] = t.since
	j.storm.refused++
	return busyUntil(max(soon, j.until(slices.Index(j.queue, t))))
}

// refusal returns the error for an agent that must return later. Called with mu held.
func (j *joins) refusal() error {
	j.storm.refused++
	now := time.Now()
	if first := now.Add(j.until(len(j.queue))); j.booked.Before(first) {
		j.booked = first
	}
	j.booked = j.booked.Add(j.until(1) / 2) // the rate is what was measured, and perhaps not what is possible
	if last := now.Add(maxReturn); j.booked.After(last) {
		j.booked = last
	}
	return busyUntil(j.booked.Sub(now))
}

// busyUntil returns the error for an agent that is to return after a time.
func busyUntil(after time.Duration) error {
	f := fault.New(fault.Unavailable, "More agents are joining than this server can serve at one time").
		WithDetail("The agent tries again at a time that the server has told it.")
	f.Reason, f.RetryAfter = fault.Busy, after
	return f
}

// begin begins a turn. Called with mu held.
func (j *joins) begin(t *turn) {
	j.current++
	t.active = true
	close(t.begun)
	t.end = time.AfterFunc(joinTime, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.finish(t)
	})
}

// finish ends a turn, or gives up a place in the queue, and lets the next agents in. It does nothing after the first
// call. Called with mu held.
func (j *joins) finish(t *turn) {
	if j.turns[t.agent] != t {
		return
	}
	delete(j.turns, t.agent)
	if t.active {
		t.end.Stop()
		j.current--
		j.advance()
		return
	}
	j.queue = slices.DeleteFunc(j.queue, func(o *turn) bool { return o == t })
}

// advance begins the turns of those that wait, as far as there is room. Called with mu held.
func (j *joins) advance() {
	for len(j.queue) > 0 && j.current < j.level {
		t := j.queue[0]
		j.queue = j.queue[1:]
		j.begin(t)
		j.storm.admitted++
	}
}

// until returns how long it takes until so many turns have begun. Called with mu held.
func (j *joins) until(turns int) time.Duration {
	return time.Duration(float64(turns) / j.rate * float64(time.Second))
}

// measure notes how many turns have begun since the last call. Called with mu held.
func (j *joins) measure() {
	now := time.Now()
	passed := now.Sub(j.storm.measured).Seconds()
	if passed <= 0 {
		return
	}
	part := 1 - math.Exp(-passed/joinMemory.Seconds())
	j.rate += (float64(j.storm.admitted-j.storm.before)/passed - j.rate) * part
	j.rate = max(j.rate, 1) // until must end
	j.storm.measured, j.storm.before = now, j.storm.admitted
}

func (j *joins) leave(t *turn) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if t.users--; t.users == 0 {
		j.finish(t)
	}
}

// arrived ends the turn of an agent whose stream has begun. The caller calls gone when the stream has ended.
func (j *joins) arrived(agent uuid.UUID) (gone func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.streams[agent]++
	if t := j.turns[agent]; t != nil {
		if !t.active { // it waits with a new connection to the coordinator
			j.queue = slices.DeleteFunc(j.queue, func(o *turn) bool { return o == t })
			j.begin(t)
		}
		j.finish(t)
	}
	return sync.OnceFunc(func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if j.streams[agent]--; j.streams[agent] == 0 {
			delete(j.streams, agent)
		}
	})
}

// watch adapts to the load every joinTick while agents wait.
func (j *joins) watch() {
	busy := j.busy()
	over, ended := j.adapt(busy)
	if ended {
		took := time.Since(over.began).Round(time.Millisecond)
		j.log.Info("agents had to wait to join", "admitted", over.admitted, "refused", over.refused, "duration", took)
	}
}

// adapt is watch without measuring. It returns a storm that has ended.
func (j *joins) adapt(busy bool) (over storm, ended bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return over, false
	}
	if busy {
		j.level = max(j.level/2, j.few)
	} else {
		j.level = min(j.level+j.few, j.many)
	}
	j.advance()
	j.measure()
	if len(j.queue) > 0 {
		time.AfterFunc(joinTick, j.watch)
		return over, false
	}
	j.watching, j.calm = false, time.Now()
	clear(j.places)
	return j.storm, true
}

// close stops adapting to the load. Turns and places end with their connections.
func (j *joins) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.closed = true
}

// newBusy returns a function that reports whether goroutines have waited long for a processor since its last call.
// They do in a process that has too much to do, and in one that does not get its processors because of others or of a
// quota.
func newBusy() func() bool {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	var before []uint64
	return func() bool {
		metrics.Read(sample)
		if sample[0].Value.Kind() != metrics.KindFloat64Histogram {
			return false
		}
		h := sample[0].Value.Float64Histogram()
		var long, all uint64
		for i, n := range h.Counts {
			if i < len(before) {
				n -= before[i]
			}
			all += n
			if h.Buckets[i] >= busyWait.Seconds() {
				long += n
			}
		}
		before = slices.Clone(h.Counts)
		return float64(long) > busyShare*float64(all)
	}
}

// processors returns how many processors this process may use at one time, with regard to a quota.
func processors() int { return runtime.GOMAXPROCS(0) }
