package tailnet

import "testing"

// A dial with a deadline far away tries for hours.
func TestBudgetsStayPositive(t *testing.T) {
	t.Parallel()
	for tries := range 10_000 {
		if b := grown(firstBudget, tries); b < firstBudget {
			t.Fatalf("after %d tries a handshake has %s", tries, b)
		}
	}
}
