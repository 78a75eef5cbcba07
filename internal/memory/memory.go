// Package memory returns memory to the system after a burst of work. It observes the garbage collector and does not
// know what the process does.
package memory

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Quiet is how long after the last collection a burst counts as over.
const Quiet = 4 * time.Second

// Returner returns memory after bursts. It sleeps while nothing is allocated: only the collections that a burst causes
// wake it, and Go's periodic one every two minutes.
type Returner struct {
	quiet time.Duration
	after func()

	mu       sync.Mutex // guards the fields below
	timer    *time.Timer
	cycles   uint64 // collections that the collector chose to make, as last seen
	stopped  bool
	returned uint64
}

// Return starts a Returner; the start of a process counts as a burst. It calls after, unless that is nil, each time a
// burst is over and before it returns memory. quiet is Quiet except in tests. A process has one Returner.
func Return(quiet time.Duration, after func()) *Returner {
	if after == nil {
		after = func() {}
	}
	r := &Returner{quiet: quiet, after: after, cycles: cycles()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timer = time.AfterFunc(quiet, r.giveBack)
	r.arm()
	return r
}

// Returned returns how often memory was returned.
func (r *Returner) Returned() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.returned
}

// Stop stops the Returner, except for a collection that is in progress. It is idempotent.
func (r *Returner) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.timer.Stop()
}

// arm schedules a call of collected after the next collection, which finds an unreachable object.
func (r *Returner) arm() {
	sentinel := new([64]byte) // too large to share its memory with another object
	runtime.AddCleanup(sentinel, (*Returner).collected, r)
}

func (r *Returner) collected() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.arm()
	// Collections caused by giveBack do not indicate work.
	if now := cycles(); now != r.cycles {
		r.cycles = now
		r.timer.Reset(r.quiet)
	}
}

// giveBack collects twice, because the contents of a sync.Pool survive the first time.
func (r *Returner) giveBack() {
	r.after()
	runtime.GC()
	Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.returned++
}

// Free collects garbage, and returns the memory that the process does not use now: of its heap, and on Linux the pages
// of its program.
func Free() {
	debug.FreeOSMemory()
	_ = freeProgram() // the pages stay in use
}

// cycles counts the collections that were not forced.
func cycles() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/automatic:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
