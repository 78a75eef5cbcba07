package wggateway

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestTooManyQuestions checks that a device cannot make the server's resolvers work without end, and keeps no other device from them.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNames(New(Options{}))
		one, other := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
		for i := range burst {
			if !n.allow(one) {
				t.Fatalf("question %d is refused", i)
			}
		}
		if n.allow(one) || !n.allow(other) {
			t.Error("a device asks too often, or pays for another")
		}
		time.Sleep(time.Second)
		for i := range perSecond {
			if !n.allow(one) {
				t.Fatalf("question %d of the next second is refused", i)
			}
		}
		if n.allow(one) {
			t.Error("a device asks too often in the next second")
		}
	})
}

func TestMeshAddr(t *testing.T) {
	t.Parallel()
	name, err := dns.ReverseAddr(devices.GatewayAddr.String())
	if err != nil {
		t.Fatal(err)
	}
	if addr, ok := meshAddr(strings.ToUpper(name)); !ok || addr != devices.GatewayAddr {
		t.Errorf("%s is about %s, %v", name, addr, ok)
	}
	for name, ours := range map[string]bool{
		name[2:]: true, meshZone: true, "xy" + name[1:]: true, "g" + name[1:]: true, "1." + name: true,
		"example.com.": false, "ip6.arpa.": false, "1.0.0.127.in-addr.arpa.": false, "x" + meshZone: false,
	} {
		if addr, ok := meshAddr(name); ok != ours || addr.IsValid() {
			t.Errorf("%s is about %s, %v", name, addr, ok)
		}
	}
}

// FuzzAnswer checks that any message can be asked, and that what comes back is a message that fits into a packet, with the question's id.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"dev.coder.", "example.com.", meshZone, "."} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeAAAA)
		m.SetEdns0(4096, true)
		packed, err := m.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(packed)
	}
	n := newNames(New(Options{}))
	f.Fuzz(func(t *testing.T, message []byte) {
		answer := n.answer(tailnet.Prefix.Addr(), message, false)
		if answer == nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if len(answer) > maxAnswer || !m.Response || answer[0] != message[0] || answer[1] != message[1] {
			t.Errorf("%x is answered with %x", message, answer)
		}
	})
}
