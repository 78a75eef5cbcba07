package ipstack

import (
	"net/netip"
	"testing"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// TestHandshakesAreBounded checks that one peer's handshakes do not use up the limit of others, and that packets of a
// recorded handshake do not count again.
func TestHandshakesAreBounded(t *testing.T) {
	t.Parallel()
	h := handshakes{open: make(map[stack.TransportEndpointID]bool), perPeer: make(map[tcpip.Address]int)}
	at := func(peer string, port int) stack.TransportEndpointID {
		return stack.TransportEndpointID{RemoteAddress: tcpip.AddrFrom16(netip.MustParseAddr(peer).As16()), RemotePort: uint16(port), LocalPort: 22}
	}
	for port := range maxPeerHandshakes {
		if !h.begin(at("fd00::a", port)) {
			t.Fatalf("handshake %d is refused", port)
		}
	}
	if h.begin(at("fd00::a", maxPeerHandshakes)) {
		t.Error("a handshake over the limit is accepted")
	}
	if !h.begin(at("fd00::a", 0)) {
		t.Error("a packet of a recorded handshake is refused")
	}
	if !h.begin(at("fd00::b", 0)) {
		t.Error("another peer's handshake is refused")
	}
	h.end(at("fd00::a", 0))
	h.end(at("fd00::a", 0)) // a second end changes nothing
	if !h.begin(at("fd00::a", maxPeerHandshakes)) || h.begin(at("fd00::a", maxPeerHandshakes+1)) {
		t.Error("ending one handshake must make room for exactly one")
	}
	for port := range maxPeerHandshakes + 1 {
		h.end(at("fd00::a", port))
	}
	h.end(at("fd00::b", 0))
	if len(h.open) != 0 || len(h.perPeer) != 0 {
		t.Errorf("%d handshakes and %d peers are kept", len(h.open), len(h.perPeer))
	}
}
