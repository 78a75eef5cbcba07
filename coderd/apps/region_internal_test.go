package apps

import (
	"math"
	"testing"
)

// TestReportedTraffic checks that what a region proxy reports cannot make the sums of a session overflow.
func TestReportedTraffic(t *testing.T) {
	t.Parallel()
	for reported, want := range map[int64]int64{math.MinInt64: 0, -1: 0, 0: 0, 12_345: 12_345, maxReported: maxReported, math.MaxInt64: maxReported} {
		if got := plausible(reported); got != want {
			t.Errorf("a report of %d bytes counts as %d, want %d", reported, got, want)
		}
	}
	// The reports of a month, one for each lifetime of a visa, fit.
	if month := int64(30 * 24 * 12); maxReported > math.MaxInt64/month {
		t.Errorf("%d bytes for each report overflow within a month", maxReported)
	}
}
