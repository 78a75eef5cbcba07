package engine

import (
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// gated returns an engine in which only the gate works.
func gated(echo bool) *Engine {
	return &Engine{opts: Options{Addr: netip.MustParseAddr("fd00::1"), AdmitEcho: func(netip.Addr) bool { return echo }}}
}

// from returns a packet from fd00::2.
func from(to string, next uint8, payload []byte) []byte {
	packet := make([]byte, header.IPv6MinimumSize+len(payload))
	header.IPv6(packet).Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(payload)), TransportProtocol: tcpip.TransportProtocolNumber(next), HopLimit: 64,
		SrcAddr: tcpip.AddrFrom16(netip.MustParseAddr("fd00::2").As16()), DstAddr: tcpip.AddrFrom16(netip.MustParseAddr(to).As16()),
	})
	copy(packet[header.IPv6MinimumSize:], payload)
	return packet
}

func TestGate(t *testing.T) {
	t.Parallel()
	const own, icmp = "fd00::1", uint8(header.ICMPv6ProtocolNumber)
	message := func(kind header.ICMPv6Type) []byte { return append([]byte{byte(kind)}, make([]byte, 15)...) }
	for _, c := range []struct {
		what   string
		packet []byte
		echo   bool
		want   bool
	}{
		{"TCP", from(own, 6, make([]byte, 20)), false, true},
		{"UDP", from(own, 17, make([]byte, 8)), false, true},
		{"another destination", from("fd00::3", 6, make([]byte, 20)), true, false},
		{"a multicast destination", from("ff02::1", icmp, message(header.ICMPv6EchoRequest)), true, false},
		{"an echo request", from(own, icmp, message(header.ICMPv6EchoRequest)), true, true},
		{"an echo request of a peer that may not", from(own, icmp, message(header.ICMPv6EchoRequest)), false, false},
		{"an echo reply", from(own, icmp, message(header.ICMPv6EchoReply)), true, false},
		{"a closed port", from(own, icmp, message(header.ICMPv6DstUnreachable)), false, true},
		{"a neighbor's advertisement", from(own, icmp, message(header.ICMPv6NeighborAdvert)), true, false},
		{"a router's advertisement", from(own, icmp, message(header.ICMPv6RouterAdvert)), true, false},
		{"a redirection", from(own, icmp, message(header.ICMPv6RedirectMsg)), true, false},
		{"a membership query", from(own, icmp, message(header.ICMPv6MulticastListenerQuery)), true, false},
		{"a fragment", from(own, 44, make([]byte, 32)), true, false},
		{"a routing header", from(own, 43, make([]byte, 32)), true, false},
		{"options for each hop", from(own, 0, make([]byte, 32)), true, false},
		{"a tunnel in the tunnel", from(own, 41, make([]byte, 60)), true, false},
		{"half a header", from(own, 6, nil)[:39], true, false},
		{"nothing", nil, true, false},
		{"IPv4", append([]byte{0x45}, make([]byte, 60)...), true, false},
		{"half an ICMP message", from(own, icmp, []byte{128, 0}), true, false},
	} {
		if got := gated(c.echo).admit(c.packet); got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, got, c.want)
		}
	}
}

// TestEchoes checks that an answer counts once, and only from the peer that was asked.
func TestEchoes(t *testing.T) {
	t.Parallel()
	var s echoes
	a, b := netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fd00::b")
	answers := 0
	ident := s.begin(a, func() { answers++ })
	for _, step := range []struct {
		from  netip.Addr
		ident uint16
		want  int
	}{{b, ident, 0}, {a, ident + 1, 0}, {a, ident, 1}, {a, ident, 1}} {
		if s.answered(step.from, step.ident); answers != step.want {
			t.Errorf("after an answer %d from %s: %d, want %d", step.ident, step.from, answers, step.want)
		}
	}
}

func FuzzGate(f *testing.F) {
	f.Add(from("fd00::1", 6, make([]byte, 20)))
	f.Add(from("fd00::1", uint8(header.ICMPv6ProtocolNumber), []byte{128, 0, 0, 0, 0, 0, 0, 0}))
	f.Add(from("fd00::1", 17, nil))
	f.Fuzz(func(t *testing.T, packet []byte) {
		e := gated(false)
		if !e.admit(packet) {
			return
		}
		ip := header.IPv6(packet)
		if addrOf(ip.DestinationAddress()) != e.opts.Addr {
			t.Error("a packet for another node came through")
		}
		switch ip.TransportProtocol() {
		case header.TCPProtocolNumber, header.UDPProtocolNumber:
		case header.ICMPv6ProtocolNumber:
			if kind := header.ICMPv6(packet[header.IPv6MinimumSize:]).Type(); kind > header.ICMPv6ParamProblem {
				t.Errorf("an ICMP message of type %d came through", kind)
			}
		default:
			t.Errorf("a packet of protocol %d came through", ip.NextHeader())
		}
	})
}
