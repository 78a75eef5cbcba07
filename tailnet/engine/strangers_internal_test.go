package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tailscale/wireguard-go/device"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestHandshakeBeforeIntroduction checks that a handshake that arrives before the introduction of its sender is answered as
// soon as the sender is introduced.
func TestHandshakeBeforeIntroduction(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	established := make(chan struct{})
	a := newEngine(t, func(o *Options) {
		o.RelayOnly = true
		o.Session = func(_ Key, yes bool) {
			if yes {
				close(established)
			}
		}
	})
	b := newEngine(t, func(o *Options) { o.RelayOnly = true })
	for _, e := range []*Engine{a, b} {
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
	}
	a.Upsert(about(b))
	a.Echo(b.opts.Addr, nil)
	testwait.Until(t, "the handshake has arrived", func() error {
		b.bind.strangers.mu.Lock()
		defer b.bind.strangers.mu.Unlock()
		return testwait.Equal(len(b.bind.strangers.kept), 1)
	})
	b.Upsert(about(a))
	b.bind.strangers.mu.Lock()
	if len(b.bind.strangers.kept) != 0 {
		t.Error("the handshake is still kept: WireGuard repeats it only after five seconds")
	}
	b.bind.strangers.mu.Unlock()
	ctx := timeout(t)
	select {
	case <-established:
	case <-ctx.Done():
		t.Fatal("there is no session")
	}
}

// TestStrangersAreBounded checks that strangers cannot make a node keep much: only handshakes, one per stranger, for few
// strangers, and for a short time.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	packet := func(from key.NodePublic, kind byte, n int) received {
		p := received{from, copyPacket(make([]byte, max(n, 1)))}
		p.data[0] = kind
		p.data = p.data[:n]
		return p
	}
	handshake := func(from key.NodePublic) received {
		return packet(from, device.MessageInitiationType, device.MessageInitiationSize)
	}
	synctest.Test(t, func(t *testing.T) {
		var s strangers
		one := key.NewNode().Public()
		for what, p := range map[string]received{
			"data":             packet(one, device.MessageTransportType, device.MessageInitiationSize),
			"a long handshake": packet(one, device.MessageInitiationType, device.MessageInitiationSize+1),
			"nothing":          packet(one, 0, 0),
		} {
			if s.keep(p) {
				t.Errorf("%s is kept", what)
			}
		}
		first, second := handshake(one), handshake(one)
		if !s.keep(first) || !s.keep(second) {
			t.Fatal("a handshake is not kept")
		}
		if p, ok := s.take(one); !ok || &p.data[0] != &second.data[0] {
			t.Error("the latest handshake is not the one that is kept")
		}
		if _, ok := s.take(one); ok {
			t.Error("a handshake is returned twice")
		}

		for range maxStrangers {
			if !s.keep(handshake(key.NewNode().Public())) {
				t.Fatal("a handshake is not kept although there is room")
			}
		}
		if s.keep(handshake(one)) {
			t.Error("a handshake over the limit is kept")
		}
		time.Sleep(strangerTime) // the bubble's time
		if !s.keep(handshake(one)) || len(s.kept) != 1 {
			t.Errorf("%d handshakes are kept after they expired", len(s.kept))
		}
		time.Sleep(strangerTime) // the bubble's time
		if _, ok := s.take(one); ok {
			t.Error("a handshake is returned after it expired")
		}
	})
}
