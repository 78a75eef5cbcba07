package ipstack_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

var (
	phone     = netip.MustParseAddr("fd00::1")
	workspace = netip.MustParseAddr("fd00::2")
)

// packet returns an IPv6 packet from phone to workspace.
func packet(next byte, payload ...byte) []byte {
	p := make([]byte, 8, 40+len(payload))
	p[0], p[5], p[6], p[7] = 6<<4, byte(len(payload)), next, 64
	src, dst := phone.As16(), workspace.As16()
	p = append(p, src[:]...)
	p = append(p, dst[:]...)
	return append(p, payload...)
}

// sum returns the Internet checksum of an ICMP message with its pseudo-header, which is 0 for a correct one.
func sum(packet []byte) uint16 {
	data := append(bytes.Clone(packet[8:40]), 0, 0, 0, byte(len(packet)-40), 0, 0, 0, 58)
	data = append(data, packet[40:]...)
	var n uint32
	for i := 0; i+1 < len(data); i += 2 {
		n += uint32(data[i])<<8 | uint32(data[i+1])
	}
	if len(data)%2 == 1 {
		n += uint32(data[len(data)-1]) << 8
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}

func TestParse(t *testing.T) {
	t.Parallel()
	echo := []byte{128, 0, 0, 0, 1, 2, 3, 4}
	for name, c := range map[string]struct {
		packet []byte
		ok     bool
		kind   ipstack.PacketKind
	}{
		"TCP":               {packet(6, make([]byte, 20)...), true, ipstack.Flow},
		"UDP":               {packet(17, make([]byte, 8)...), true, ipstack.Flow},
		"echo request":      {packet(58, echo...), true, ipstack.EchoRequest},
		"echo reply":        {packet(58, 129, 0, 0, 0, 1, 2, 3, 4), true, ipstack.Other},
		"port unreachable":  {packet(58, 1, 4, 0, 0, 0, 0, 0, 0), true, ipstack.Flow},
		"router discovery":  {packet(58, 134, 0, 0, 0, 0, 0, 0, 0), true, ipstack.Other},
		"short ICMP":        {packet(58, 128), true, ipstack.Other},
		"fragment":          {packet(44, make([]byte, 16)...), true, ipstack.Other},
		"hop-by-hop option": {packet(0, make([]byte, 16)...), true, ipstack.Other},
		"tunnel":            {packet(41, make([]byte, 40)...), true, ipstack.Other},
		"IPv4":              {append([]byte{0x45}, make([]byte, 60)...), false, ipstack.Other},
		"short":             {packet(6)[:39], false, ipstack.Other},
		"empty":             {nil, false, ipstack.Other},
	} {
		p, ok := ipstack.Parse(c.packet)
		if ok != c.ok || p.Kind != c.kind || ok && (p.Src != phone || p.Dst != workspace) {
			t.Errorf("%s: %+v, %v", name, p, ok)
		}
	}
}

func TestEchoReply(t *testing.T) {
	t.Parallel()
	for _, payload := range []string{"", "odd", "even"} {
		request := packet(58, append([]byte{128, 0, 0, 0, 1, 2, 3, 4}, payload...)...)
		p, _ := ipstack.Parse(request)
		reply := p.EchoReply()
		q, ok := ipstack.Parse(reply)
		if !ok || q.Src != workspace || q.Dst != phone || reply[40] != 129 || !bytes.Equal(reply[44:], request[44:]) || sum(reply) != 0 {
			t.Errorf("%q is answered with\n%s", payload, hex.Dump(reply))
		}
	}
}

func TestPortUnreachable(t *testing.T) {
	t.Parallel()
	answer := ipstack.PortUnreachable(netip.AddrPortFrom(phone, 5000), netip.AddrPortFrom(workspace, 53))
	p, ok := ipstack.Parse(answer)
	if !ok || p.Src != workspace || p.Dst != phone || answer[40] != 1 || answer[41] != 4 || sum(answer) != 0 {
		t.Errorf("the answer is\n%s", hex.Dump(answer))
	}
	about, ok := ipstack.Parse(answer[48:])
	if !ok || about.Src != phone || about.Dst != workspace || !bytes.Equal(answer[88:92], []byte{5000 >> 8, 5000 & 0xff, 0, 53}) {
		t.Errorf("it is about\n%s", hex.Dump(answer[48:]))
	}
}

// FuzzParse checks that any bytes can be asked about, and that an echo request has an answer of its size.
func FuzzParse(f *testing.F) {
	f.Add(packet(58, 128, 0, 0, 0, 1, 2, 3, 4))
	f.Add(packet(6, make([]byte, 20)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, ok := ipstack.Parse(data)
		if ok && p.Kind == ipstack.EchoRequest {
			if reply := p.EchoReply(); len(reply) != len(data) {
				t.Errorf("%d bytes are answered with %d", len(data), len(reply))
			}
		}
	})
}
