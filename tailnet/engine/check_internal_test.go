package engine

import (
	"testing"
	"time"
)

// TestCheckRelays checks that the connection to a relay that answers stays, and that the one to a relay that does not is replaced.
func TestCheckRelays(t *testing.T) {
	t.Parallel()
	relay := newFaucet(t, newRelay(t))
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.SetRelays([]Relay{relay.Relay}, 1)
	await(t, "the relay is connected", connected(e))
	link := e.link(1)
	answered := func() bool {
		link.mu.Lock()
		defer link.mu.Unlock()
		return link.current != nil && link.asked.IsZero()
	}
	made := e.RelaysRenewed()
	for range 5 {
		await(t, "the relay has answered", answered)
		e.CheckRelays(patience)
	}
	if got := e.RelaysRenewed(); got != made {
		t.Fatalf("%d connections replaced one to a relay that answers", got-made)
	}

	await(t, "the relay has answered", answered)
	relay.drip.Store(0)
	e.CheckRelays(patience)
	e.CheckRelays(patience) // the relay may still answer
	if answered() {
		t.Fatal("the relay was not asked")
	}
	relay.drip.Store(-1) // for a new connection; the old one gets the answer only now
	link.mu.Lock()
	link.asked = time.Now().Add(-patience)
	link.mu.Unlock()
	e.CheckRelays(patience)
	await(t, "the connection is replaced", func() bool { return e.RelaysRenewed() > made })
}
