package engine

import (
	"sync/atomic"
	"testing"

	"github.com/tailscale/wireguard-go/device"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestAnswerIsLost checks that the copy of a handshake's first message replaces the answer, too, if that was lost.
func TestAnswerIsLost(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	var established atomic.Bool
	a := newEngine(t, func(o *Options) { o.RelayOnly, o.Session = true, func(_ Key, yes bool) { established.Store(yes) } })
	b := newEngine(t, func(o *Options) { o.RelayOnly = true })
	for _, e := range []*Engine{a, b} {
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
	}
	a.Upsert(about(b))
	nowhere := about(a)
	nowhere.Region = 0
	b.Upsert(nowhere)
	latest := func(e, peer *Engine) [device.MessageInitiationSize]byte {
		route := e.peers.byKey(rawOf(peer.public)).route
		route.mu.Lock()
		defer route.mu.Unlock()
		return route.initiation
	}
	a.Echo(b.opts.Addr, nil)
	var first [device.MessageInitiationSize]byte
	testwait.Until(t, "a begins a handshake", func() error {
		first = latest(a, b)
		return testwait.Unless(first[0] == device.MessageInitiationType, "it has not")
	})
	b.bind.arrived(a.public, first[:], t.Context().Done())
	testwait.Until(t, "b has answered", func() error {
		return testwait.Unless(b.peers.byKey(rawOf(a.public)).route.session.unconfirmed(), "it has not")
	})
	b.Upsert(about(a))
	if established.Load() {
		t.Fatal("the answer has arrived")
	}
	a.RepeatHandshake(rawOf(b.public))
	testwait.Until(t, "there is a session", func() error { return testwait.Equal(established.Load(), true) })
	if latest(a, b) != first || latest(b, a)[0] != 0 {
		t.Error("the session comes from another handshake")
	}
	exchange(t, a, b, 1000)
}

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
