package memo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/memo"
)

func ExampleCache() {
	squares := memo.New[int, int](memo.Options{Fresh: time.Minute, Timeout: time.Second, Max: 100})
	for range 2 {
		square, err := squares.Get(context.Background(), 7, func(context.Context) (int, error) {
			fmt.Println("working")
			return 49, nil
		})
		fmt.Println(square, err)
	}
	// Output:
	// working
	// 49 <nil>
	// 49 <nil>
}

var errBad, errAway = errors.New("bad question"), errors.New("away")

func TestCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := memo.New[string, int](memo.Options{
			Fresh: time.Minute, Timeout: time.Second, Max: 3, Working: 2, Keep: func(err error) bool { return errors.Is(err, errBad) },
		})
		asked := 0
		ask := func(key string, err error) (int, error) {
			return c.Get(t.Context(), key, func(context.Context) (int, error) { asked++; return asked, err })
		}
		want := func(what string, key string, err error, value, total int) {
			t.Helper()
			if got, gotErr := ask(key, err); got != value || !errors.Is(gotErr, err) || asked != total {
				t.Errorf("%s: %d, %v, asked %d times; want %d, %v, %d", what, got, gotErr, asked, value, err, total)
			}
		}
		want("new", "a", nil, 1, 1)
		want("kept", "a", nil, 1, 1)
		want("an error that is kept", "bad", errBad, 2, 2)
		want("an error that is kept, again", "bad", errBad, 2, 2)
		want("an error that is not", "away", errAway, 3, 3)
		want("an error that is not, again", "away", errAway, 4, 4)
		time.Sleep(time.Minute + time.Second)
		want("stale", "a", nil, 5, 5)
		c.Forget(func(key string, value int) bool { return key == "a" && value == 5 })
		want("forgotten", "a", nil, 6, 6)
		for i := range 10 {
			if _, err := ask(fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		}
		before := asked
		for i := range 10 {
			if _, err := ask(fmt.Sprint(i), nil); err != nil {
				t.Error(err)
			}
		}
		if kept := 10 - (asked - before); kept > 3 {
			t.Errorf("%d answers are kept, want at most 3", kept)
		}
	})
}

// TestOneWorks: one caller works, others wait for its answer; the work ends in time even if its caller leaves, and an answer that is
// forgotten meanwhile is not kept.
func TestOneWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := memo.New[string, int](memo.Options{Fresh: time.Minute, Timeout: 10 * time.Second, Max: 3, Working: 1})
		leaving, leave := context.WithCancel(t.Context())
		var running sync.WaitGroup
		release := make(chan struct{})
		running.Go(func() {
			got, err := c.Get(leaving, "a", func(ctx context.Context) (int, error) {
				select {
				case <-release:
					return 1, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			})
			if got != 1 || err != nil {
				t.Errorf("the worker got %d, %v", got, err)
			}
		})
		synctest.Wait()
		leave()
		never := func(context.Context) (int, error) { t.Error("a second one works"); return 0, nil }
		for range 3 {
			running.Go(func() {
				if got, err := c.Get(t.Context(), "a", never); got != 1 || err != nil {
					t.Errorf("one who waited got %d, %v", got, err)
				}
			})
		}
		if _, err := c.Get(leaving, "a", never); !errors.Is(err, context.Canceled) {
			t.Errorf("one who left got %v", err)
		}
		if _, err := c.Get(t.Context(), "b", never); !errors.Is(err, memo.ErrBusy) {
			t.Errorf("one too many got %v", err)
		}
		synctest.Wait()
		c.Forget(func(string, int) bool { return false })
		close(release)
		running.Wait()
		if got, err := c.Get(t.Context(), "a", func(context.Context) (int, error) { return 2, nil }); got != 2 || err != nil {
			t.Errorf("after a change in the course of the work: %d, %v; want a new answer", got, err)
		}
		if _, err := c.Get(t.Context(), "slow", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("work without an end: %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Get(t.Context(), "panics", func(context.Context) (int, error) { panic("broken") })
		}()
		if got, err := c.Get(t.Context(), "panics", func(context.Context) (int, error) { return 3, nil }); got != 3 || err != nil {
			t.Errorf("after a panic: %d, %v", got, err)
		}
	})
}
