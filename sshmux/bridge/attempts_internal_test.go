package bridge

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newAttempts(log *strings.Builder) *attempts {
	return &attempts{log: slog.New(slog.NewTextHandler(log, nil)), networks: map[netip.Prefix]tally{}}
}

func network(t *testing.T, addr string) netip.Prefix {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return networkOf(at)
}

// TestNetworks: the limit is that of an address, or of the network of 64 bits that one customer of an IPv6 provider has. The log names it once.
func TestNetworks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		a := newAttempts(&log)
		for i := range 2 * maxRefused {
			counted := a.refuse(network(t, fmt.Sprintf("[2001:db8:0:1::%x]:%d", i, 1000+i)))
			if want := i < maxRefused; counted != want {
				t.Errorf("key %d: counted %t, want %t", i, counted, want)
			}
			a.refuse(network(t, fmt.Sprintf("192.0.2.1:%d", 1000+i)))
		}
		for addr, want := range map[string]bool{
			"[2001:db8:0:1:ffff::1]:22": true, "[2001:db8:0:2::1]:22": false,
			"192.0.2.1:22": true, "[::ffff:192.0.2.1]:22": true, "192.0.2.2:22": false,
		} {
			if got := a.exceeded(network(t, addr)); got != want {
				t.Errorf("%s: %t, want %t", addr, got, want)
			}
		}
		time.Sleep(forgiveEvery) // the limit is reached again, which is no news
		a.refuse(network(t, "192.0.2.1:22"))
		if n := strings.Count(log.String(), "192.0.2.1/32"); n != 1 {
			t.Errorf("the log names the network %d times:\n%s", n, log.String())
		}
	})
}

// TestFromEverywhere: a client with more networks than the server remembers learns nothing from those beyond, until others are forgotten.
func TestFromEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		a := newAttempts(&log)
		for i := range maxNetworks {
			if !a.refuse(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32)) {
				t.Fatalf("network %d was not counted", i)
			}
		}
		other := network(t, "192.0.2.1:22")
		if a.refuse(other) || !a.exceeded(other) {
			t.Error("a network beyond those that are remembered is told about keys")
		}
		a.takeBack(other, 0)
		time.Sleep(2 * forgiveEvery)
		if !a.refuse(other) || a.exceeded(other) || len(a.networks) != 1 {
			t.Errorf("the others were not forgotten: %d networks", len(a.networks))
		}
	})
}
