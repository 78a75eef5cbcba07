// Package monitor watches how full a workspace's memory and volumes are, and decides when each has passed its
// threshold. It stays silent until that changes. It knows neither the server nor how a resource is measured.
//
// A resource passes its threshold, and falls below it, only after three samples in a row agree, and it falls below it
// only with a distance. So a value near the threshold does not go back and forth:
//
//	      3 samples at or above the threshold
//	   ┌──────────────────────────────────────────▶┐
//	below                                         over
//	   └◀──────────────────────────────────────────┘
//	      3 samples more than 5 points below it
//
// A sample that cannot be taken ends the row. The server stores the states, and gives them back with the manifest and
// in its answers (Adopt), so that a restart of the agent or the server neither repeats nor loses a change.
package monitor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

const (
	// Interval is the time between two samples.
	Interval = 10 * time.Second

	// enough is how many samples in a row change the state.
	enough = 3
	// distance is how many points below the threshold a resource must fall. Small thresholds halve instead.
	distance = 5
	// patience bounds one measurement: a network file system may never answer.
	patience = time.Second
)

var errSlow = errors.New("the file system does not answer")

// Resource is what to watch.
type Resource struct {
	Volume    string  // a path; "" is the memory
	Threshold float64 // percent
	Over      bool    // whether it had passed its threshold when it was last reported
}

// Level is the state of a resource.
type Level struct {
	Volume  string
	Over    bool
	Percent float64 // of the last sample; 0 before the first one
}

// Watcher watches resources. Safe for concurrent use.
type Watcher struct {
	log      *slog.Logger
	interval time.Duration
	measure  func(volume string) (percent float64, err error)

	mu      sync.Mutex // guards the fields below, and the gauges
	gauges  []*gauge   // of the last Watch
	waiting map[string]chan struct{}
}

// New returns a watcher. measure may block for as long as a file system does not answer. An interval of 0 means
// Interval.
func New(log *slog.Logger, interval time.Duration, measure func(volume string) (percent float64, err error)) *Watcher {
	if interval == 0 {
		interval = Interval
	}
	return &Watcher{log: log, interval: interval, measure: measure, waiting: map[string]chan struct{}{}}
}

// Watch takes samples until ctx ends, and reports the levels of all resources when one of them has passed its threshold
// or fallen below it. It replaces the resources of an earlier call, which the caller must have ended. Without resources
// it returns at once.
func (w *Watcher) Watch(ctx context.Context, resources []Resource, report func([]Level)) {
	gauges := make([]*gauge, len(resources))
	for i, r := range resources {
		gauges[i] = &gauge{Resource: r}
	}
	w.mu.Lock()
	w.gauges = gauges
	w.mu.Unlock()
	if len(gauges) == 0 {
		return
	}
	ticker := time.NewTicker(w.interval)
	defer ticker.Stop()
	for {
		if w.round(ctx, gauges) {
			report(w.levels(gauges))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Adopt takes over which resources have passed their thresholds, as the server has stored it.
func (w *Watcher) Adopt(over map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range w.gauges {
		if o, ok := over[g.Volume]; ok && o != g.Over {
			g.Over, g.row = o, 0
		}
	}
}

// round takes one sample of each resource, and returns whether a state changed.
func (w *Watcher) round(ctx context.Context, gauges []*gauge) (changed bool) {
	for _, g := range gauges {
		percent, err := w.sample(ctx, g.Volume)
		if ctx.Err() != nil {
			return false
		}
		w.mu.Lock()
		first := err != nil && !g.failed
		g.failed = err != nil
		if err != nil {
			g.row = 0
		} else if g.take(percent) {
			changed = true
		}
		w.mu.Unlock()
		if first {
			w.log.Warn("cannot measure a monitored resource", "path", g.Volume, "err", err)
		}
	}
	return changed
}

// sample measures once. A measurement that does not end is abandoned, and there is only ever one of each resource.
func (w *Watcher) sample(ctx context.Context, volume string) (percent float64, err error) {
	done := make(chan struct{})
	w.mu.Lock()
	busy := w.waiting[volume] != nil
	if !busy {
		w.waiting[volume] = done
	}
	w.mu.Unlock()
	if busy {
		return 0, errSlow
	}
	var got float64
	var failed error
	go func() { // nothing waits for it: the kernel may never return
		got, failed = w.measure(volume)
		w.mu.Lock()
		delete(w.waiting, volume)
		w.mu.Unlock()
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
		return got, failed
	case <-timer.C:
		return 0, errSlow
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func (w *Watcher) levels(gauges []*gauge) []Level {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Level, len(gauges))
	for i, g := range gauges {
		out[i] = Level{g.Volume, g.Over, g.percent}
	}
	return out
}

// gauge is a resource with its samples.
type gauge struct {
	Resource
	percent float64
	row     int  // samples in a row that speak for the other state
	failed  bool // the last sample
}

// take adds a sample, and returns whether the state changed.
func (g *gauge) take(percent float64) bool {
	g.percent = percent
	other := percent >= g.Threshold
	if g.Over {
		other = percent < g.Threshold-min(distance, g.Threshold/2)
	}
	if !other {
		g.row = 0
		return false
	}
	if g.row++; g.row < enough {
		return false
	}
	g.Over, g.row = !g.Over, 0
	return true
}
