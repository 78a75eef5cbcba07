package wireguard

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

// TestStrangersAreBounded checks how often the owner is asked about addresses without a session.
func TestStrangersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBind(nil)
		at := func(i int) netip.AddrPort {
			return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 51820)
		}
		b.setKnown([]netip.AddrPort{at(9999)})
		if b.ask(at(9999)) {
			t.Error("an address with a session is a stranger")
		}
		for i := range maxAsked {
			if !b.ask(at(i)) || b.ask(at(i)) {
				t.Fatalf("address %d is not asked about exactly once", i)
			}
		}
		if b.ask(at(maxAsked)) {
			t.Error("too many addresses are asked about")
		}
		// A socket for both versions of IP calls an IPv4 address by its IPv6 form.
		if mapped := netip.AddrPortFrom(netip.AddrFrom16(at(9999).Addr().As16()), 51820); b.ask(mapped) {
			t.Error("an address with a session is a stranger in its other form")
		}
		time.Sleep(askAgain)
		if !b.ask(at(maxAsked)) || len(b.asked) != 1 {
			t.Errorf("after a while, %d addresses are remembered", len(b.asked))
		}
	})
}

// sent is a socket that keeps the sizes of what it was given.
type sent struct {
	conn.Bind
	sizes []int
}

func (s *sent) Send(messages [][]byte, _ conn.Endpoint) error {
	for _, m := range messages {
		s.sizes = append(s.sizes, len(m))
	}
	return nil
}

// TestMarksStay checks that a mark does not leave the machine, and that it is reported once all before it has left.
func TestMarksStay(t *testing.T) {
	t.Parallel()
	socket := new(sent)
	b := &bind{Bind: socket}
	send := func(sizes ...int) {
		t.Helper()
		var messages [][]byte
		for _, size := range sizes {
			messages = append(messages, make([]byte, size))
		}
		if err := b.Send(messages, nil); err != nil {
			t.Fatal(err)
		}
	}
	marked := len(mark(netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"))) + device.MessageTransportSize
	send(longest, marked, 96) // of an earlier removal: nothing waits for it
	marks := b.expect(1)
	send(96, 96)
	select {
	case <-marks:
		t.Fatal("packets are taken for a mark")
	default:
	}
	send(96, marked)
	send(marked, marked)
	select {
	case <-marks:
	default:
		t.Fatal("a mark is not reported")
	}
	if want := []int{longest, 96, 96, 96, 96}; !slices.Equal(socket.sizes, want) {
		t.Errorf("messages of %d bytes have left, want %d", socket.sizes, want)
	}
}

// TestAdmit checks which packets of a peer reach the network stack.
func TestAdmit(t *testing.T) {
	t.Parallel()
	g := &Gateway{opts: Options{Prefix: netip.MustParsePrefix("fd00:c0de::/48")}}
	for dst, want := range map[string]bool{
		"fd00:c0de::2": true, "2001:db8::1": true, // the stack refuses the second
		"fe80::1": false, "ff02::1": false, "ff05::2": false, "::1": false, "::": false,
	} {
		packet := make([]byte, 60)
		packet[0], packet[5], packet[6], packet[7] = 6<<4, 20, 6, 64
		to := netip.MustParseAddr(dst).As16()
		copy(packet[24:], to[:])
		if got := g.admit(packet); got != want {
			t.Errorf("a packet to %s is admitted: %v", dst, got)
		}
	}
}

// TestManyFlows checks that a peer has a bounded number of flows, and that each that ends makes room.
func TestManyFlows(t *testing.T) {
	t.Parallel()
	src, dst := netip.MustParseAddrPort("[fd00:c0de:0:1::1]:1"), netip.MustParseAddrPort("[fd00:c0de::2]:8000")
	g := &Gateway{
		opts: Options{
			Prefix:    netip.MustParsePrefix("fd00:c0de::/48"),
			AcceptTCP: func(netip.AddrPort, netip.AddrPort) func(Conn) { return func(Conn) {} },
			AcceptUDP: func(netip.AddrPort, netip.AddrPort) func(net.Conn) { return nil },
		},
		peers: map[netip.Addr]*peer{src.Addr(): {flows: map[*flow]struct{}{}}},
	}
	var open []func(*ipstack.TCPConn)
	for i := range maxFlows {
		serve := g.acceptTCP(src, dst)
		if serve == nil {
			t.Fatalf("flow %d is refused", i)
		}
		open = append(open, serve)
	}
	if g.acceptTCP(src, dst) != nil || g.acceptUDP(src, dst) != nil {
		t.Error("a flow over the limit is accepted")
	}
	open[0](nil)
	if g.acceptTCP(src, dst) == nil {
		t.Error("a flow that has ended makes no room")
	}
	for name, to := range map[string]string{"another network": "[2001:db8::1]:80", "another device": "[fd00:c0df::1]:80"} {
		if g.acceptTCP(src, netip.MustParseAddrPort(to)) != nil {
			t.Errorf("%s is reached", name)
		}
	}
	if len(g.peers[src.Addr()].flows) != maxFlows {
		t.Errorf("%d flows are counted", len(g.peers[src.Addr()].flows))
	}
}
