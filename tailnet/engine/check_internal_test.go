package engine

import (
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestCheckRelays checks that the connection to a relay that answers stays, and that the one to a relay that does not is replaced.
func TestCheckRelays(t *testing.T) {
	t.Parallel()
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	e.SetRelays([]Relay{newRelay(t)}, 1)
	testwait.Until(t, "the relay is connected", connected(e))
	link := e.link(1)
	answered := func() error {
		link.mu.Lock()
		defer link.mu.Unlock()
		return testwait.Unless(link.current != nil && link.asked.IsZero(), "asked at %s, %+v", link.asked, link.state)
	}
	made := e.RelaysRenewed()
	for range 5 {
		testwait.Until(t, "the relay has answered", answered)
		link.mu.Lock()
		link.state.Latency = 0
		link.mu.Unlock()
		e.CheckRelays(patience)
		testwait.Until(t, "the relay has answered again", func() error {
			state := e.RelayStates()[1]
			return testwait.Unless(state.Latency > 0, "%+v", state)
		})
	}
	if got := e.RelaysRenewed(); got != made {
		t.Fatalf("%d connections replaced one to a relay that answers", got-made)
	}

	testwait.Until(t, "the relay has answered", answered)
	link.mu.Lock()
	link.asked = time.Now().Add(-patience) // a question that the relay has not answered
	link.mu.Unlock()
	e.CheckRelays(patience)
	testwait.Until(t, "the connection is replaced", func() error {
		return testwait.Unless(e.RelaysRenewed() > made, "no connection was replaced: %+v", e.RelayStates())
	})
}
