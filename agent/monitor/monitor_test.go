package monitor_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/agent/monitor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// gap is a sample that cannot be taken.
const gap = -1

// watch takes the samples of one resource, and returns after which of them it was reported, and as what.
func watch(t *testing.T, r monitor.Resource, samples []float64) map[int]bool {
	t.Helper()
	reported := map[int]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	w := monitor.New(slog.New(slog.DiscardHandler), 0, func(string) (float64, error) {
		if n++; n >= len(samples) {
			cancel()
		}
		if n > len(samples) || samples[n-1] == gap {
			return 0, errors.New("gone")
		}
		return samples[n-1], nil
	})
	w.Watch(ctx, []monitor.Resource{r}, func(all []monitor.Level) {
		if len(all) != 1 || all[0].Percent != samples[n-1] {
			t.Errorf("report after sample %d: %v", n, all)
		}
		reported[n] = all[0].Over
	})
	return reported
}

func TestThresholds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		threshold float64
		over      bool
		samples   []float64
		want      map[int]bool // state by sample
	}{
		"silence below":             {threshold: 90, samples: []float64{0, 50, 89.9, 89.9, 89.9, 89.9}, want: map[int]bool{}},
		"three samples at it":       {threshold: 90, samples: []float64{90, 91, 90, 99, 99, 0}, want: map[int]bool{3: true}},
		"peaks":                     {threshold: 90, samples: []float64{99, 99, 10, 99, 99, 10, 99, 0}, want: map[int]bool{}},
		"a gap ends the row":        {threshold: 90, samples: []float64{99, 99, gap, 99, 99, 99, 0}, want: map[int]bool{6: true}},
		"just below is not enough":  {threshold: 90, over: true, samples: []float64{89, 86, 85, 89, 86, 85, 89, 85, 85, 85}, want: map[int]bool{}},
		"three samples far below":   {threshold: 90, over: true, samples: []float64{84, 84, 84, 84, 0}, want: map[int]bool{3: false}},
		"a rise ends the fall":      {threshold: 90, over: true, samples: []float64{1, 1, 95, 1, 1, 1, 0}, want: map[int]bool{6: false}},
		"and again":                 {threshold: 50, samples: []float64{60, 60, 60, 1, 1, 1, 60, 60, 60, 0}, want: map[int]bool{3: true, 6: false, 9: true}},
		"no repetition":             {threshold: 90, over: true, samples: []float64{99, 99, 99, 99, 99, 99}, want: map[int]bool{}},
		"a threshold of 0":          {threshold: 0, samples: []float64{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, want: map[int]bool{3: true}},
		"a small threshold":         {threshold: 4, over: true, samples: []float64{2, 2, 2, 1, 1, 1, 1}, want: map[int]bool{6: false}},
		"full":                      {threshold: 100, samples: []float64{99.9, 100, 100, 100, 0}, want: map[int]bool{4: true}},
		"gaps do not change states": {threshold: 90, over: true, samples: []float64{gap, gap, gap, gap, gap, gap, gap}, want: map[int]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				got := watch(t, monitor.Resource{Volume: "/", Threshold: tt.threshold, Over: tt.over}, tt.samples)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("reports (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestServersStateCounts checks that a watcher goes on from what the server has stored: it reports again what the server did not accept.
func TestServersStateCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := monitor.New(slog.New(slog.DiscardHandler), 0, func(string) (float64, error) { return 95, nil })
		var reports []time.Duration
		began := time.Now()
		w.Watch(ctx, []monitor.Resource{{Threshold: 90}}, func([]monitor.Level) {
			reports = append(reports, time.Since(began))
			w.Adopt(map[string]bool{"": len(reports) == 2, "/other": true})
			if len(reports) == 2 {
				time.AfterFunc(time.Hour, cancel)
			}
		})
		if diff := cmp.Diff([]time.Duration{2 * monitor.Interval, 5 * monitor.Interval}, reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

// TestHangingVolume checks that a file system that never answers is asked once, and does not delay the other resources.
func TestHangingVolume(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		never := make(chan struct{})
		defer synctest.Wait()
		defer close(never)
		var mu sync.Mutex
		asked := map[string]int{}
		w := monitor.New(slog.New(slog.DiscardHandler), 0, func(volume string) (float64, error) {
			mu.Lock()
			asked[volume]++
			mu.Unlock()
			if volume == "/dead" {
				<-never
			}
			return 95, nil
		})
		all := []monitor.Resource{{Volume: "/dead", Threshold: 1}, {Threshold: 90}}
		reports := 0
		w.Watch(ctx, all, func(got []monitor.Level) {
			reports++
			if diff := cmp.Diff([]monitor.Level{{Volume: "/dead"}, {Over: true, Percent: 95}}, got); diff != "" {
				t.Errorf("report (-want +got):\n%s", diff)
			}
			cancel()
		})
		// A new manifest does not ask again either.
		again, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		w.Watch(again, all, func([]monitor.Level) { reports++ })
		mu.Lock()
		defer mu.Unlock()
		if reports != 2 || asked["/dead"] != 1 || asked[""] < 8 {
			t.Errorf("%d reports, asked %v", reports, asked)
		}
	})
}

// TestNothingToWatch checks that a watcher without resources does not even wait.
func TestNothingToWatch(t *testing.T) {
	t.Parallel()
	w := monitor.New(slog.New(slog.DiscardHandler), 0, func(string) (float64, error) { return 100, nil })
	w.Watch(t.Context(), nil, func(all []monitor.Level) { t.Errorf("report of nothing: %v", all) })
}
