package engine

import (
	"testing"
	"time"
)

// TestCheckRelays checks that the connection to a relay that answers stays, and that the one to a relay that does not is replaced.
func TestCheckRelays(t *testing.T) {
	t.Parallel()
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.SetRelays([]Relay{newRelay(t)}, 1)
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
		link.mu.Lock()
		link.state.Latency = 0
		link.mu.Unlock()
		e.CheckRelays(patience)
		await(t, "the relay has answered again", func() bool { return e.RelayStates()[1].Latency > 0 })
	}
	if got := e.RelaysRenewed(); got != made {
		t.Fatalf("%d connections replaced one to a relay that answers", got-made)
	}

	await(t, "the relay has answered", answered)
	link.mu.Lock()
	link.asked = time.Now().Add(-patience) // a question that the relay has not answered
	link.mu.Unlock()
	e.CheckRelays(patience)
	await(t, "the connection is replaced", func() bool { return e.RelaysRenewed() > made })
}
