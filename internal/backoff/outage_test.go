package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

func TestOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ away, low, high time.Duration }{
		{0, 100 * time.Millisecond, 300 * time.Millisecond},
		{5 * time.Second, 300 * time.Millisecond, 600 * time.Millisecond},
		{30 * time.Second, time.Second, 2 * time.Second},
		{time.Minute, 7500 * time.Millisecond, 15 * time.Second},
		{1000 * time.Hour, 7500 * time.Millisecond, 15 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var o backoff.Outage
			o.Next()
			time.Sleep(c.away)
			seen := map[time.Duration]bool{}
			for range 100 {
				d := o.Next()
				if d < c.low || d > c.high {
					t.Fatalf("after %s away it waits %s, want %s to %s", c.away, d, c.low, c.high)
				}
				seen[d] = true
			}
			if len(seen) < 2 {
				t.Errorf("after %s away it always waits the same: a thousand agents would come at once", c.away)
			}
		})
	}
}

// TestOutageGoesOn: a connection that ends at once does not end the outage, one that was stable does.
func TestOutageGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var o backoff.Outage
		o.Next()
		time.Sleep(time.Hour)
		o.Lost(time.Now().Add(-backoff.Stable + time.Millisecond))
		if d := o.Next(); d < 7*time.Second {
			t.Errorf("after a short connection it waits %s, want as long as before", d)
		}
		o.Lost(time.Now().Add(-backoff.Stable))
		if d := o.Next(); d > time.Second {
			t.Errorf("after a stable connection it waits %s, want a short time", d)
		}
	})
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := backoff.Sleep(t.Context(), time.Minute, nil); err != nil || time.Since(began) != time.Minute {
			t.Errorf("Sleep returned %v after %s, want nil after a minute", err, time.Since(began))
		}
		began = time.Now()
		wake := make(chan struct{}, 1)
		wake <- struct{}{}
		if err := backoff.Sleep(t.Context(), time.Minute, wake); err != nil || time.Since(began) != 0 {
			t.Errorf("Sleep with a wake returned %v after %s, want nil at once", err, time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := backoff.Sleep(ctx, time.Minute, nil); !errors.Is(err, context.Canceled) || time.Since(began) != 0 {
			t.Errorf("Sleep with an ended context returned %v after %s", err, time.Since(began))
		}
	})
}
