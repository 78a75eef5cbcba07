package tailnet

import (
	"testing"
	"testing/synctest"
	"time"
)

// A dial with a distant deadline retries for hours.
func TestBudgetsStayPositive(t *testing.T) {
	t.Parallel()
	for tries := range 10_000 {
		if b := grown(firstBudget, tries); b < firstBudget {
			t.Fatalf("after %d tries a handshake has %s", tries, b)
		}
	}
}

func TestRestartsKeepApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLive()
		time.Sleep(time.Hour)
		if seen, _ := l.handshakes(); !l.restart(seen) || l.restart(seen) {
			t.Fatal("want one restart for all that saw the same handshake")
		}
		if seen, _ := l.handshakes(); l.restart(seen) {
			t.Fatal("a handshake was restarted in the moment in which it began")
		}
		time.Sleep(restartGap)
		if seen, futile := l.handshakes(); !l.restart(seen) || seen != 1 || futile != 1 {
			t.Fatalf("no second restart after %d, %d in vain", seen, futile)
		}
		l.setSession(true)
		if _, futile := l.handshakes(); futile != 0 {
			t.Fatalf("%d restarts count as futile although there is a session", futile)
		}
	})
}
