package engine

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestWithoutUDP checks that a node whose machine opens no UDP sockets is reached through its relay, that it publishes
// no endpoints, and that it has direct paths once its machine opens them.
func TestWithoutUDP(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	var allowed atomic.Bool
	var published atomic.Int32
	a := newEngine(t, func(o *Options) {
		o.listen = func(ctx context.Context, network, address string) (net.PacketConn, error) {
			if !allowed.Load() {
				return nil, &net.OpError{Op: "listen", Net: network, Err: syscall.EOPNOTSUPP}
			}
			return new(net.ListenConfig).ListenPacket(ctx, network, address)
		}
		o.Endpoints = func(found []Endpoint) { published.Store(int32(len(found))) }
	})
	b := newEngine(t, nil)
	if !a.RelayOnly() || b.RelayOnly() || a.LocalPort() != 0 {
		t.Fatalf("relay only: %t without UDP, with port %d; %t with UDP", a.RelayOnly(), a.LocalPort(), b.RelayOnly())
	}
	for _, e := range []*Engine{a, b} {
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
	}
	a.Upsert(about(b, local(b)))
	b.Upsert(about(a))
	exchange(t, a, b, 100_000)
	exchange(t, b, a, 100_000)
	if report, err := a.Check(timeout(t)); err != nil || report.UDP {
		t.Errorf("measured %+v, %v", report, err)
	}
	a.Rebind() // another network, which allows none either
	exchange(t, a, b, 1000)
	if n := published.Load(); n != 0 || !a.RelayOnly() {
		t.Errorf("%d endpoints, relay only: %t", n, a.RelayOnly())
	}

	allowed.Store(true)
	a.Rebind()
	if a.RelayOnly() {
		t.Fatal("there are no direct paths, but the machine opens UDP sockets")
	}
	b.Upsert(about(a, local(a)))
	testwait.Until(t, "the path is direct", func() error {
		a.Ping(rawOf(b.public), func(Pong) {})
		state := a.PeerStates()[rawOf(b.public)]
		return testwait.Unless(state.Endpoint.IsValid(), "%+v", state)
	})
	exchange(t, a, b, 100_000)
}
