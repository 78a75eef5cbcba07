package coderd

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestUsesAreNoted: a mesh connection of many days keeps its session alive, also after a note that failed; without one nothing is written.
func TestUsesAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var connected, fail atomic.Bool
		var notes [][]string
		sessions := func() []string {
			if !connected.Load() {
				return nil
			}
			return []string{"a", "b"}
		}
		u := activity{log: slog.New(slog.DiscardHandler), sessions: sessions, note: func(_ context.Context, ids ...string) error {
			if fail.Load() {
				return errors.New("the database is away")
			}
			notes = append(notes, ids)
			return nil
		}}
		ended := make(chan struct{})
		go func() { defer close(ended); u.run(ctx) }()
		time.Sleep(24*time.Hour + time.Minute)
		synctest.Wait()
		if len(notes) != 0 {
			t.Errorf("nothing is connected: %d notes", len(notes))
		}
		connected.Store(true)
		fail.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		fail.Store(false)
		time.Sleep(2 * activityEvery)
		synctest.Wait()
		if diff := cmp.Diff([][]string{{"a", "b"}, {"a", "b"}}, notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		cancel()
		<-ended
	})
}
