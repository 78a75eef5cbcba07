package tailnet

import (
	"testing"
	"time"

	"github.com/google/uuid"
)

func TestWatchNoticesSleep(t *testing.T) {
	t.Parallel()
	type reading struct {
		wall time.Time
		mono time.Duration
	}
	tick, readings := make(chan time.Time), make(chan reading, 1)
	at := reading{wall: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	readings <- at
	n, err := newNode(Options{ID: uuid.New()}, clock{
		now: func() (time.Time, time.Duration) {
			r := <-readings
			return r.wall, r.mono
		},
		tick: tick,
		stop: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()

	for _, step := range []struct {
		name       string
		wall, mono time.Duration
		want       uint64
	}{
		{"awake", time.Second, time.Second, 0},
		{"busy machine", 8 * time.Second, 8 * time.Second, 0},
		{"clock adjusted", 7 * time.Second, time.Second, 0},
		{"clock set back", -time.Hour, time.Second, 0},
		{"slept", time.Hour, time.Second, 1},
		{"slept briefly", 20 * time.Second, time.Second, 2},
		{"awake again", time.Second, time.Second, 2},
		{"process stopped", time.Minute, time.Minute, 3},
	} {
		at = reading{at.wall.Add(step.wall), at.mono + step.mono}
		tick <- time.Time{}
		readings <- at
		// The watcher takes the next tick only after it has handled this one. The extra tick has no effect.
		tick <- time.Time{}
		readings <- at
		if got := n.rebinds.Load(); got != step.want {
			t.Errorf("%s: got %d rebinds in all, want %d", step.name, got, step.want)
		}
	}
}
