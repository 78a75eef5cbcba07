package engine

import (
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestRepeatHandshake checks that the copy of a handshake's first message replaces one that was lost, and that a peer that
// has received the message ignores the copy.
func TestRepeatHandshake(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	var changes atomic.Int64 // of the session at b
	newNode := func(session func(Key, bool)) *Engine {
		e := newEngine(t, func(o *Options) { o.RelayOnly, o.Session = true, session })
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
		return e
	}
	var established atomic.Bool
	a := newNode(func(_ Key, yes bool) { established.Store(yes) })
	b := newNode(func(Key, bool) { changes.Add(1) })

	a.Upsert(about(b))
	a.RepeatHandshake(rawOf(b.public)) // there is none yet: nothing is sent
	a.Echo(b.opts.Addr, nil)
	testwait.Until(t, "the handshake is lost", func() error {
		_, kept := b.bind.strangers.take(a.public)
		return testwait.Unless(kept, "it has not arrived")
	})
	first := a.peers.byKey(rawOf(b.public)).route.initiation
	b.Upsert(about(a))
	a.RepeatHandshake(rawOf(b.public))
	testwait.Until(t, "there is a session", func() error { return testwait.Equal(established.Load(), true) })
	if a.peers.byKey(rawOf(b.public)).route.initiation != first {
		t.Error("the session comes from another handshake")
	}

	exchange(t, a, b, 1000)
	before := changes.Load()
	a.RepeatHandshake(rawOf(b.public))
	exchange(t, a, b, 1000)
	if now := changes.Load(); now != before {
		t.Errorf("the copy changed the session of a peer %d times", now-before)
	}
}
