package gateway

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestTooManyQuestions checks that a device cannot make the server's resolvers work without end, and keeps no other device from them.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames(New(Options{}))
		one, other := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		for i := range burst {
			if !n.allow(one) {
				t.Fatalf("question %d is refused", i)
			}
		}
		if n.allow(one) || !n.allow(other) {
			t.Error("a device asks too often, or pays for another")
		}
		time.Sleep(time.Second)
		for i := range perSecond {
			if !n.allow(one) {
				t.Fatalf("question %d of the next second is refused", i)
			}
		}
		if n.allow(one) {
			t.Error("a device asks too often in the next second")
		}
	})
}
