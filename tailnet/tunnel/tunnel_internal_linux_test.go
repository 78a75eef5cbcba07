package tunnel

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

// packet returns an IPv6 packet with a next header and 20 bytes.
func packet(src, dst string, next byte) []byte {
	p := make([]byte, 60)
	p[0], p[6], p[7] = 6<<4, next, 64
	binary.BigEndian.PutUint16(p[4:], 20)
	copy(p[8:], netip.MustParseAddr(src).AsSlice())
	copy(p[24:], netip.MustParseAddr(dst).AsSlice())
	return p
}

// TestAdmit checks which packets of the machine reach the network stack: TCP and UDP from its own address to addresses of
// the mesh.
func TestAdmit(t *testing.T) {
	t.Parallel()
	const machine, name, peer = "fd00:c0de::1", "fd00:c0de::2", "fd00:c0de::3"
	tunnel := &Tunnel{
		opts: Options{Machine: netip.MustParseAddr(machine), Addr: netip.MustParseAddr(name), Prefix: netip.MustParsePrefix("fd00:c0de::/48")},
		link: ipstack.NewLink(nil, MTU),
	}
	const tcp, udp, icmp, fragment, hopByHop, ip4, ip6, gre = 6, 17, 58, 44, 0, 4, 41, 47
	for what, c := range map[string]struct {
		packet []byte
		want   bool
	}{
		"TCP":                {packet(machine, peer, tcp), true},
		"UDP":                {packet(machine, peer, udp), true},
		"the name server":    {packet(machine, name, udp), true},
		"another source":     {packet(peer, name, tcp), false},
		"a forwarded packet": {packet("2001:db8::1", peer, tcp), false},
		"a link-local one":   {packet("fe80::1", peer, tcp), false},
		"to the machine":     {packet(machine, machine, tcp), false},
		"outside":            {packet(machine, "2001:db8::1", tcp), false},
		"a neighbor prefix":  {packet(machine, "fd00:c0df::1", tcp), false},
		"link-local":         {packet(machine, "fe80::1", tcp), false},
		"multicast":          {packet(machine, "ff02::1", udp), false},
		"loopback":           {packet(machine, "::1", tcp), false},
		"unspecified":        {packet(machine, "::", tcp), false},
		"a neighbor query":   {packet(machine, peer, icmp), false},
		"a fragment":         {packet(machine, peer, fragment), false},
		"an extension":       {packet(machine, peer, hopByHop), false},
		"IPv4 in IPv6":       {packet(machine, peer, ip4), false},
		"IPv6 in IPv6":       {packet(machine, peer, ip6), false},
		"GRE":                {packet(machine, peer, gre), false},
		"IPv4":               {append([]byte{4<<4 | 5}, packet(machine, peer, tcp)[1:]...), false},
		"half a header":      {packet(machine, peer, tcp)[:39], false},
		"nothing":            {nil, false},
	} {
		if got := tunnel.admit(c.packet); got != c.want {
			t.Errorf("%s: admitted %v, want %v", what, got, c.want)
		}
	}
}
