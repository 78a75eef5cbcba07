package backoff_test

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/internal/backoff"
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
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff.Outage(c.away)
			if d < c.low || d > c.high {
				t.Fatalf("after %s away it waits %s, want %s to %s", c.away, d, c.low, c.high)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("after %s away it always waits the same: a thousand agents would come at once", c.away)
		}
	}
}
