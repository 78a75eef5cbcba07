package metadata_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/agent/metadata"
)

// counts runs scripts that print how often they have run.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) get(key string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[key]
}

func (c *counts) run(ctx context.Context, item metadata.Item) (string, error) {
	c.mu.Lock()
	c.of[item.Key]++
	n := c.of[item.Key]
	c.mu.Unlock()
	switch item.Script {
	case "hang":
		<-ctx.Done()
		return "so far", ctx.Err()
	case "fail":
		return "half", errors.New("exit status 3")
	}
	return item.Key + strings.Repeat("!", n), nil
}

func TestValuesAreCollectedWhileSomebodyLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran := &counts{of: map[string]int{}}
		c := metadata.New(nil, ran.run)
		c.Set([]metadata.Item{{Key: "a", Interval: 10 * time.Second}, {Key: "b"}, {Key: "a", Script: "twice"}, {Key: "hang", Script: "hang", Interval: time.Minute, Timeout: 2 * time.Second}, {Key: "fail", Script: "fail", Interval: time.Minute}})
		time.Sleep(time.Minute)
		if len(ran.of) != 0 {
			t.Fatalf("scripts ran while nobody looked: %v", ran.of)
		}
		watch := func(d time.Duration) (seen []metadata.Value, batches int) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			err := c.Watch(ctx, func(batch []metadata.Value) error {
				batches++
				for _, v := range batch {
					if time.Since(v.CollectedAt) > time.Hour {
						t.Errorf("collected at %s", v.CollectedAt)
					}
					v.CollectedAt = time.Time{}
					seen = append(seen, v)
				}
				return nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("watch: %v", err)
			}
			synctest.Wait()
			return seen, batches
		}
		seen, batches := watch(15 * time.Second)
		want := []metadata.Value{{Key: "a", Value: "a!"}, {Key: "b", Value: "b!"}, {Key: "fail", Value: "half", Error: "exit status 3"},
			{Key: "hang", Value: "so far", Error: "the script did not end within 2s"}, {Key: "a", Value: "a!!"}}
		if diff := cmp.Diff(want, sortFirst(seen, 3)); diff != "" || batches > 5 {
			t.Errorf("first watch in %d batches (-want +got):\n%s", batches, diff)
		}
		time.Sleep(time.Second)
		// Known values arrive at once, and fresh ones are not collected again.
		before := ran.get("a")
		seen, batches = watch(time.Millisecond)
		if len(seen) < 4 || batches < 1 || ran.get("a") != before {
			t.Errorf("second watch: %d batches of %v, a ran %d times more", batches, seen, ran.get("a")-before)
		}
		if err := c.Watch(t.Context(), func([]metadata.Value) error { return errors.New("gone") }); err == nil {
			t.Error("a watcher that is gone is watching")
		}
		c.Set([]metadata.Item{{Key: "c", Interval: time.Minute}})
		seen, _ = watch(time.Second)
		if diff := cmp.Diff([]metadata.Value{{Key: "c", Value: "c!"}}, seen); diff != "" {
			t.Errorf("after new items (-want +got):\n%s", diff)
		}
		c.Close()
		if err := c.Watch(t.Context(), nil); err == nil {
			t.Error("a closed collector is watched")
		}
	})
}

// sortFirst orders the first n values, which come from scripts that run side by side.
func sortFirst(values []metadata.Value, n int) []metadata.Value {
	n = min(n, len(values))
	for i := range n {
		for j := i + 1; j < n; j++ {
			if values[j].Key < values[i].Key {
				values[i], values[j] = values[j], values[i]
			}
		}
	}
	return values
}

func FuzzClean(f *testing.F) {
	f.Add("ok\n")
	f.Add(strings.Repeat("ä", 2000) + "\xff\x00")
	f.Fuzz(func(t *testing.T, output string) {
		got := metadata.Clean(output)
		if len(got) > metadata.MaxValue || !utf8.ValidString(got) || strings.ContainsRune(got, 0) || got != strings.TrimSpace(got) {
			t.Errorf("Clean(%q) = %q", output, got)
		}
		if metadata.Clean(got) != got {
			t.Errorf("Clean(%q) changes", got)
		}
	})
}
