package tailnet

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestBudgetsStayPositive checks that budgets do not overflow: a dial with a distant deadline retries for hours.
func TestBudgetsStayPositive(t *testing.T) {
	t.Parallel()
	for tries := range 10_000 {
		if b := grown(firstBudget, tries); b < firstBudget {
			t.Fatalf("after %d tries the handshake budget is %s", tries, b)
		}
	}
}

func TestRestartsKeepApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLive()
		time.Sleep(time.Hour)
		if seen, _ := l.handshakes(); !l.restart(seen) || l.restart(seen) {
			t.Fatal("want one restart for all callers that saw the same handshake")
		}
		if seen, _ := l.handshakes(); l.restart(seen) {
			t.Fatal("a handshake was restarted just after it began")
		}
		time.Sleep(restartGap)
		if seen, futile := l.handshakes(); !l.restart(seen) || seen != 1 || futile != 1 {
			t.Fatalf("no second restart after %d restarts, %d of them futile", seen, futile)
		}
		l.setSession(true)
		if _, futile := l.handshakes(); futile != 0 {
			t.Fatalf("%d restarts count as futile although there is a session", futile)
		}
	})
}
