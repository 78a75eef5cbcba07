package tailnet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// silence fails the test if the dial leads to a connection. The dial may be refused, or remain unanswered for a while that
// is long compared with what an allowed dial takes.
func silence(t *testing.T, from *tailnet.Node, network string, to netip.AddrPort) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	c, err := from.Dial(ctx, network, to)
	if err == nil {
		c.Close()
		t.Errorf("dial %s %s: got a connection", network, to)
	}
}

func TestPolicyPerPeer(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	server := tailnettest.NewNode(t, r, tailnet.Options{})
	allowed, denied := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, server, 80)
	tailnettest.Echo(t, server, 81)
	served := make(chan netip.AddrPort, 10)
	server.HandleTCP(func(src, _ netip.AddrPort) (func(net.Conn), bool) {
		served <- src
		return func(c net.Conn) { c.Close() }, true
	})
	server.HandleUDP(func(src, _ netip.AddrPort) (func(net.Conn), bool) {
		served <- src
		return func(c net.Conn) { c.Close() }, true
	})
	tailnettest.Introduce(t, allowed, server, tailnet.InboundNone, tailnet.InboundPorts(80))
	tailnettest.Introduce(t, denied, server, tailnet.InboundNone, tailnet.InboundNone)

	c, err := allowed.Dial(timeout(t), "tcp", at(server, 80))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 100)
	silence(t, allowed, "tcp", at(server, 81))
	silence(t, denied, "tcp", at(server, 80))
	// The other direction was never allowed.
	silence(t, server, "tcp", at(allowed, 80))

	// UDP has no handshake: the datagram itself must not reach the handler.
	u, err := denied.Dial(timeout(t), "udp", at(server, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	u.Write([]byte("let me in"))
	u.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := u.Read(make([]byte, 10)); err == nil {
		t.Error("a datagram without permission was answered")
	}
	select {
	case src := <-served:
		t.Errorf("a handler was offered %s, which the policy does not admit", src)
	default:
	}
}

func TestNarrowedPolicyEndsConnections(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Echo(t, b, 8)
	if err := a.Upsert(tailnet.Peer{NodeInfo: b.Info()}); err != nil {
		t.Fatal(err)
	}
	if err := b.Upsert(tailnet.Peer{NodeInfo: a.Info(), Inbound: tailnet.InboundPorts(7, 8)}); err != nil {
		t.Fatal(err)
	}
	dial := func(port uint16) net.Conn {
		c, err := a.Dial(timeout(t), "tcp", at(b, port))
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, 100)
		return c
	}
	kept, cut := dial(7), dial(8)
	defer kept.Close()
	defer cut.Close()
	if err := b.Upsert(tailnet.Peer{NodeInfo: a.Info(), Inbound: tailnet.InboundPorts(7)}); err != nil {
		t.Fatal(err)
	}
	cut.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := cut.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("read from a connection that the policy no longer allows: got %v, want EOF or a reset", err)
	}
	exchange(t, kept, 100)
	silence(t, a, "tcp", at(b, 8))

	b.Remove(a.ID())
	kept.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := kept.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes from a peer that removed us", n)
	}
	silence(t, a, "tcp", at(b, 7))
}

func isReset(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && !op.Timeout()
}

// TestStranger checks that a node that knows everything about another, but was not introduced to it, cannot complete a
// handshake.
func TestStranger(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	stranger, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	if err := stranger.Upsert(tailnet.Peer{NodeInfo: b.Info(), Inbound: tailnet.InboundAll}); err != nil {
		t.Fatal(err)
	}
	silence(t, stranger, "tcp", at(b, 7))
	if peers := stranger.Status().Peers; len(peers) != 1 || !peers[0].LastHandshake.IsZero() || peers[0].Rx != 0 {
		t.Errorf("a stranger finished a handshake: %+v", peers)
	}
}

// TestStolenAddress checks that a node cannot claim another's id: it has its own key, and WireGuard verifies keys.
func TestStolenAddress(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	victim, server := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	thief := tailnettest.NewNode(t, r, tailnet.Options{ID: victim.ID()})
	tailnettest.Echo(t, server, 7)
	tailnettest.Introduce(t, victim, server, tailnet.InboundNone, tailnet.InboundAll)
	if err := thief.Upsert(tailnet.Peer{NodeInfo: server.Info()}); err != nil {
		t.Fatal(err)
	}
	silence(t, thief, "tcp", at(server, 7))

	// Even a node that was introduced under another id cannot send from the victim's address.
	honest := thief.Info()
	honest.ID = uuid.New()
	if err := server.Upsert(tailnet.Peer{NodeInfo: honest, Inbound: tailnet.InboundAll}); err != nil {
		t.Fatal(err)
	}
	silence(t, thief, "tcp", at(server, 7))
	c, err := victim.Dial(timeout(t), "tcp", at(server, 7))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// TestNoHostForwarding checks that flows without a handler do not reach the host. The network stack would connect them to
// the host's loopback interface or, for foreign destinations, to its networks. A peer with all permissions must reach
// neither.
func TestNoHostForwarding(t *testing.T) {
	t.Parallel()
	hit := make(chan string, 10)
	host := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hit <- r.RemoteAddr }))
	defer host.Close()
	port := uint16(host.Listener.Addr().(*net.TCPAddr).Port)
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()

	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	for _, to := range []netip.AddrPort{
		at(b, port),
		netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
		netip.AddrPortFrom(netip.MustParseAddr("::1"), port),
		netip.AddrPortFrom(netip.MustParseAddr("fd7a:115c:a1e0::1"), port),
		netip.AddrPortFrom(netip.MustParseAddr("fd7a:115c:a1e0::53"), 53),
		netip.AddrPortFrom(tailnet.Addr(uuid.New()), port),
	} {
		silence(t, a, "tcp", to)
	}
	if _, err := a.Dial(timeout(t), "tcp", at(b, port)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial an unserved port of the node itself: got %v, want %v", err, syscall.ECONNREFUSED)
	}
	u, err := a.Dial(timeout(t), "udp", at(b, uint16(udp.LocalAddr().(*net.UDPAddr).Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	fmt.Fprint(u, "to the host")
	udp.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, from, err := udp.ReadFrom(make([]byte, 100)); err == nil {
		t.Errorf("the host got %d bytes from %s", n, from)
	}
	select {
	case from := <-hit:
		t.Errorf("the host was reached from %s", from)
	default:
	}
}

// TestFloodOfFlows checks that a peer cannot open more UDP flows than it may.
func TestFloodOfFlows(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	opened := make(chan struct{}, 1000)
	b.HandleUDP(func(_, _ netip.AddrPort) (func(net.Conn), bool) {
		return func(c net.Conn) {
			opened <- struct{}{}
			io.Copy(io.Discard, c)
		}, true
	})
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	for range 400 {
		c, err := a.Dial(timeout(t), "udp", at(b, 53))
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("x"))
		defer c.Close()
	}
	// A subsequent TCP connection ensures that the datagrams have been counted.
	if _, err := a.Dial(timeout(t), "tcp", at(b, 9)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial after the flood: %v", err)
	}
	if got := len(opened); got > 256 {
		t.Errorf("%d flows of one peer are open, want at most 256", got)
	}
}
