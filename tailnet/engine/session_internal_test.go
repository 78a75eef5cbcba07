package engine

import (
	"sync"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestSessionIsUsable checks that a session counts as established only when this end can send with it. Here a's answer to an old handshake of
// b's is void, as after sleep: a has keys that b does not have.
func TestSessionIsUsable(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	states := map[Key]bool{} // by the engine that has the session: of the peer's key, which only one of them has
	a, b := relayed(t, func(o *Options) {
		o.Session = func(k Key, established bool) {
			mu.Lock()
			defer mu.Unlock()
			states[k] = established
		}
	})
	aOf, bOf := rawOf(a.public), rawOf(b.public)
	established := func(k Key) bool {
		mu.Lock()
		defer mu.Unlock()
		return states[k]
	}
	exchange(t, b, a, 1000)
	if !established(aOf) || !established(bOf) {
		t.Fatal("a session that carried data is not established at both ends")
	}
	a.ResetSession(bOf)
	if established(bOf) {
		t.Fatal("a session is established after its reset")
	}
	b.RepeatHandshake(aOf) // the handshake that led to the old session, which b has completed: it ignores a's answer
	testwait.Until(t, "a has answered", func() error {
		rx, tx := a.Traffic(bOf)
		return testwait.Unless(rx > 0 && tx > 0, "%d bytes in, %d out", rx, tx)
	})
	if established(bOf) {
		t.Error("a session that a cannot use counts as established")
	}
	exchange(t, a, b, 1000)
	if !established(bOf) {
		t.Error("a session that carried data is not established")
	}
}
