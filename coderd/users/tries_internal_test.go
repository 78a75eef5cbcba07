package users

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

var (
	here  = netip.MustParseAddr("192.0.2.1")
	there = netip.MustParseAddr("2001:db8::1")
)

func TestTries(t *testing.T) {
	t.Parallel()
	tr := newTries()
	now := time.Unix(0, 0)
	tr.now = func() time.Time { return now }
	left := func(account string, addr netip.Addr) int {
		n, _, _ := tr.left(newPair(account, addr))
		return n
	}
	for range pairTries {
		tr.failed(newPair("ann", here))
	}
	if left("ann", here) != 0 || left(" ANN ", here) != 0 || left("ann", there) != pairTries || left("bob", here) != pairTries {
		t.Errorf("left: %d %d %d %d", left("ann", here), left(" ANN ", here), left("ann", there), left("bob", here))
	}
	tr.failed(newPair("bob", there))
	if got := left("bob", netip.MustParseAddr("2001:db8::ffff")); got != pairTries-1 {
		t.Errorf("the same /64: %d left", got)
	}
	// An address that guesses at many accounts gets one try at each, and so do all other users there.
	for i := range addressTries {
		tr.failed(newPair(fmt.Sprint("guess", i), here))
	}
	if left("guess1", here) != 0 || left("cleo", here) != pairTriesAfter || left("cleo", there) != pairTries {
		t.Errorf("after many: %d %d %d", left("guess1", here), left("cleo", here), left("cleo", there))
	}
	tr.passed(newPair("guess1", here))
	if left("guess1", here) != pairTriesAfter {
		t.Error("a right password does not count")
	}
	now = now.Add(triesWindow)
	if left("ann", here) != pairTries || left("guess1", here) != pairTries {
		t.Error("the window does not end")
	}
}

// TestTriesBounded checks that a full table forgets entries, and that clients never share a count.
func TestTriesBounded(t *testing.T) {
	t.Parallel()
	table := map[int]*failures{}
	now := time.Unix(0, 0)
	for i := range maxTries + 100 {
		note(table, i, now)
	}
	if len(table) > maxTries {
		t.Errorf("%d entries", len(table))
	}
	for _, f := range table {
		if f.n != 1 {
			t.Fatal("a shared count")
		}
	}
	note(table, -1, now.Add(2*triesWindow))
	if len(table) != 1 {
		t.Errorf("%d entries after all have ended", len(table))
	}
}

// TestHasherIsFair checks that askers alternate: many requests of one do not delay another, and when too many wait, the
// busiest address gives way.
func TestHasherIsFair(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHasher()
		h.turns, h.free = 1, 1
		release, err := h.enter(t.Context(), newPair("running", here))
		if err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2*maxWaiting)
		refused := make(chan string, 2*maxWaiting)
		ask := func(ctx context.Context, name string, p pair) {
			go func() {
				done, err := h.enter(ctx, p)
				if err != nil {
					refused <- name
					return
				}
				order <- name
				done()
			}()
			synctest.Wait()
		}
		for range maxWaitingPair + 3 {
			ask(t.Context(), "flood", newPair("ann", here))
		}
		if len(refused) != 3 {
			t.Errorf("one asker: %d refused, want 3", len(refused))
		}
		ask(t.Context(), "ann elsewhere", newPair("ann", there))
		for i := 0; len(h.waiting) < maxWaiting; i++ {
			ask(t.Context(), "many names", newPair(fmt.Sprint(i), here))
		}
		ask(t.Context(), "bob elsewhere", newPair("bob", there))
		if len(refused) != 4 || len(h.waiting) != maxWaiting {
			t.Errorf("full: %d refused, %d wait", len(refused), len(h.waiting))
		}
		ask(t.Context(), "one more of the flood", newPair("new", here))
		if len(refused) != 5 {
			t.Errorf("the busiest address takes another's place: %d refused", len(refused))
		}
		ctx, cancel := context.WithCancel(t.Context())
		h.mu.Lock()
		last := h.lanes[len(h.lanes)-1].turns[0]
		h.mu.Unlock()
		if !h.leave(last) { // makes room for one that then leaves
			t.Error("a waiting turn cannot leave")
		}
		last.granted <- false
		ask(ctx, "gone", newPair("gone", there))
		cancel()
		synctest.Wait()
		release()
		synctest.Wait()
		if first, second := <-order, <-order; first != "flood" || second != "ann elsewhere" {
			t.Errorf("order: %s, %s", first, second)
		}
		if h.free != 1 || len(h.lanes) != 0 || len(h.waiting) != 0 {
			t.Errorf("left over: %d free, %d lanes, %d wait", h.free, len(h.lanes), len(h.waiting))
		}
	})
}

func TestHasherRefusal(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	h := newHasher()
	h.turns, h.free = 1, 0
	cancel()
	if _, err := h.enter(ctx, pair{}); err == nil {
		t.Error("a request that has ended waits")
	}
	if fault.CodeOf(tooMany()) != fault.Unavailable {
		t.Error("code")
	}
}
