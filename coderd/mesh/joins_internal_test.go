package mesh

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// processor does work in the order of its arrival.
type processor struct {
	free   chan struct{}
	waited atomic.Int64 // the longest wait since busy was called
}

func newProcessor() *processor { return &processor{free: make(chan struct{}, 1)} }

// work returns how long the work took, with the time for which it waited.
func (p *processor) work(d time.Duration) time.Duration {
	begin := time.Now()
	p.free <- struct{}{}
	p.waited.Store(max(p.waited.Load(), int64(time.Since(begin)))) // only the work that runs stores
	time.Sleep(d)
	<-p.free
	return time.Since(begin)
}

func (p *processor) busy() bool { return time.Duration(p.waited.Swap(0)) > busyWait }

func never() bool { return false }

func quietJoins(busy func() bool) *joins { return newJoins(1, busy, slog.New(slog.DiscardHandler)) }

// returned is how agents came back after a restart.
type returned struct {
	took, handshake time.Duration // until the last was back; of the slowest handshake
	refused         int
}

// comeBack lets agents return to a server, one after the other with a time between them.
func comeBack(j *joins, p *processor, agents int, apart time.Duration) (r returned) {
	const trip = 20 * time.Millisecond
	var all sync.WaitGroup
	var mu sync.Mutex
	begin := time.Now()
	for i := range agents {
		all.Go(func() {
			id := uuid.New()
			time.Sleep(time.Duration(i) * apart)
			for {
				p.work(time.Millisecond) // the request and its authentication
				leave, err := j.enter(context.Background(), id)
				if err == nil {
					defer leave()
					break
				}
				mu.Lock()
				r.refused++
				mu.Unlock()
				time.Sleep(fault.As(err).RetryAfter)
			}
			p.work(3 * time.Millisecond)
			time.Sleep(2 * trip) // the relay
			handshake := p.work(time.Millisecond)
			time.Sleep(trip)
			p.work(4 * time.Millisecond) // the manifest, the stream
			defer j.arrived(id)()
			mu.Lock()
			defer mu.Unlock()
			r.handshake, r.took = max(r.handshake, handshake), time.Since(begin)
		})
	}
	all.Wait()
	return r
}

// TestReturnOfAllAgents checks that the server answers each handshake before the agent would begin another one,
// however many agents return at one moment, and that it does not idle meanwhile.
func TestReturnOfAllAgents(t *testing.T) {
	t.Parallel()
	const agents = 1000
	const patience = 400 * time.Millisecond // tailnet's firstBudget
	for name, c := range map[string]struct {
		joins func(*processor) *joins
		holds bool
	}{
		"turns": {func(p *processor) *joins { return quietJoins(p.busy) }, true},
		"all at a time": {func(p *processor) *joins {
			j := quietJoins(p.busy)
			j.few, j.level = agents, agents
			return j
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newProcessor()
				j := c.joins(p)
				r := comeBack(j, p, agents, 0)
				t.Logf("all are back after %s with %d refusals; the slowest handshake took %s", r.took, r.refused, r.handshake)
				if (r.handshake < patience) != c.holds {
					t.Errorf("the slowest handshake took %s, want less than %s: %t", r.handshake, patience, c.holds)
				}
				if least := agents * 9 * time.Millisecond; r.took > 2*least {
					t.Errorf("all are back after %s; the work takes %s", r.took, least)
				}
				time.Sleep(joinTime)
				if left := j.counts(); left != (counts{}) {
					t.Errorf("afterwards: %+v", left)
				}
			})
		})
	}
}

// TestColdServer checks that a server which needs a moment for its first turns does not have others return long after it
// is done.
func TestColdServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const agents, cold = 1000, 400 * time.Millisecond
		p := newProcessor()
		j := newJoins(2, p.busy, slog.New(slog.DiscardHandler))
		go p.work(cold)
		synctest.Wait()
		r := comeBack(j, p, agents, time.Millisecond)
		t.Logf("all are back after %s with %d refusals", r.took, r.refused)
		if least := cold + agents*9*time.Millisecond; r.took > least*5/4 {
			t.Errorf("all are back after %s; the work takes %s", r.took, least)
		}
		time.Sleep(joinTime)
		if left := j.counts(); left != (counts{}) {
			t.Errorf("afterwards: %+v", left)
		}
	})
}

// counts are what joins holds.
type counts struct {
	current, turns, waiting, streams int
	watching                         bool
}

func (j *joins) counts() counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	return counts{j.current, len(j.turns), len(j.queue), len(j.streams), j.watching}
}

// enterAll lets n new agents enter, and returns how many have their turn now and the refusals. The others wait.
func enterAll(j *joins, n int) (in *atomic.Int32, refused *refusals) {
	in, refused = new(atomic.Int32), new(refusals)
	for range n {
		go func() {
			if _, err := j.enter(context.Background(), uuid.New()); err != nil {
				refused.add(err)
				return
			}
			in.Add(1)
		}()
	}
	synctest.Wait()
	return in, refused
}

type refusals struct {
	mu  sync.Mutex
	all []*fault.Error
}

func (r *refusals) add(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fault.As(err))
}

func (r *refusals) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// sorted returns them in the order in which their agents are to return.
func (r *refusals) sorted() []*fault.Error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(slices.Values(r.all), func(a, b *fault.Error) int { return cmp.Compare(a.RetryAfter, b.RetryAfter) })
}

// TestRefusedAgents checks that agents for which there is no room learn when to return, each later than the one
// before, and that those that waited too long do too.
func TestRefusedAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := quietJoins(func() bool { return true })
		in, refused := enterAll(j, fewJoins+queuedJoins+1000)
		if int(in.Load()) != fewJoins || refused.count() != 1000 || j.counts().waiting != queuedJoins {
			t.Fatalf("%d have their turn, %d wait, %d are refused; want %d, %d, 1000",
				in.Load(), j.counts().waiting, refused.count(), fewJoins, queuedJoins)
		}
		latest := time.Duration(0)
		for _, f := range refused.sorted() {
			if f == nil || f.Code != fault.Unavailable || f.Reason != fault.Busy {
				t.Fatalf("refused with %+v", f)
			}
			if f.RetryAfter <= 0 || f.RetryAfter > maxReturn {
				t.Fatalf("refused with %+v", f)
			}
			if f.RetryAfter == latest {
				t.Fatalf("two are asked to return after %s", latest)
			}
			latest = f.RetryAfter
		}
		if want := (queuedJoins + 1000/2) * time.Second / joinRate; latest < want-time.Second/joinRate || latest > want {
			t.Errorf("the last of a thousand is asked to return after %s, want %s", latest, want)
		}
		time.Sleep(joinPatience)
		synctest.Wait()
		want := 1000 + queuedJoins - fewJoins // joinTime is over for the first
		if refused.count() != want || j.counts().waiting != 0 {
			t.Errorf("%d are refused and %d wait; want %d and 0", refused.count(), j.counts().waiting, want)
		}
		time.Sleep(joinTime)
	})
}

// TestTurnsOfAbsentAgents checks that agents that do not arrive hold up others for joinTime at most, and that ended
// requests and connections give up their places at once.
func TestTurnsOfAbsentAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := quietJoins(func() bool { return true })
		if in, _ := enterAll(j, fewJoins); in.Load() != fewJoins {
			t.Fatalf("%d have their turn", in.Load())
		}
		time.Sleep(joinTime - joinPatience/2)
		in, _ := enterAll(j, 1)
		if in.Load() != 0 {
			t.Fatal("there is a turn too many")
		}
		canceled, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := j.enter(canceled, uuid.New())
			ended <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err == nil || fault.As(err) != nil || j.counts().waiting != 1 {
			t.Errorf("a request that ended returns %v, and %d wait", err, j.counts().waiting)
		}
		time.Sleep(joinPatience / 2)
		synctest.Wait()
		if in.Load() != 1 || j.counts().current != 1 {
			t.Errorf("%d of those that waited have their turn, %d in all", in.Load(), j.counts().current)
		}
		leave, err := j.enter(t.Context(), uuid.New())
		if err != nil || j.counts().current != 2 {
			t.Fatalf("%v, %d have their turn", err, j.counts().current)
		}
		leave()
		leave()
		if j.counts().current != 1 {
			t.Errorf("%d have their turn after a connection has ended", j.counts().current)
		}
		time.Sleep(joinTime)
	})
}

// TestOneTurnPerAgent checks that an agent takes one place however many connections it opens, and none while its
// stream goes on.
func TestOneTurnPerAgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := quietJoins(func() bool { return true })
		greedy := uuid.New()
		var leaves []func()
		for range 10 * queuedJoins {
			leave, err := j.enter(t.Context(), greedy)
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		if j.counts().current != 1 || j.counts().waiting != 0 {
			t.Errorf("one agent has %d turns and %d places", j.counts().current, j.counts().waiting)
		}
		gone := j.arrived(greedy)
		if j.counts().current != 0 {
			t.Error("the agent has arrived and keeps its turn")
		}
		enterAll(j, fewJoins+1) // the last one waits
		if leave, err := j.enter(t.Context(), greedy); err != nil || j.counts().current != fewJoins || j.counts().waiting != 1 {
			t.Errorf("an agent with a stream: %v; %d turns, %d wait", err, j.counts().current, j.counts().waiting)
		} else {
			leave()
		}
		gone()
		gone()
		for _, leave := range leaves {
			leave()
		}
		if j.counts().streams != 0 || j.counts().current != fewJoins {
			t.Errorf("%d streams and %d turns are left", j.counts().streams, j.counts().current)
		}
		// A stream may begin while a new connection of its agent waits.
		waiting := make(chan error)
		go func() {
			_, err := j.enter(context.Background(), greedy)
			waiting <- err
		}()
		synctest.Wait()
		defer j.arrived(greedy)()
		if err := <-waiting; err != nil || j.counts().current != fewJoins || j.counts().waiting != 1 {
			t.Errorf("an agent that has arrived meanwhile: %v; %d turns, %d wait", err, j.counts().current, j.counts().waiting)
		}
		time.Sleep(joinTime + joinPatience)
	})
}

// TestIdleServerAdmitsMore checks that a server with time to spare does not make agents wait for those that are far
// away.
func TestIdleServerAdmitsMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := quietJoins(never)
		in, _ := enterAll(j, manyJoins+1)
		time.Sleep(joinTick * manyJoins / fewJoins)
		synctest.Wait()
		if in.Load() != manyJoins {
			t.Errorf("%d have their turn, want %d", in.Load(), manyJoins)
		}
		time.Sleep(joinPatience + joinTime)
	})
}
