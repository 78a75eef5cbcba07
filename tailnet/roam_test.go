package tailnet_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// TestRebind checks that connections survive new sockets at either end, on either path.
func TestRebind(t *testing.T) {
	t.Parallel()
	for name, relayOnly := range map[string]bool{"direct": false, "relayed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := tailnettest.NewRelay(t)
			a := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: relayOnly})
			b := tailnettest.NewNode(t, r, tailnet.Options{})
			tailnettest.Echo(t, b, 7)
			tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
			c, err := a.Dial(timeout(t), "tcp", at(b, 7))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, n := range []*tailnet.Node{a, b, a} {
				exchange(t, c, 1<<16)
				n.Rebind("test")
				exchange(t, c, 1<<16)
			}
			if got := a.Status().Rebinds; got != 2 {
				t.Errorf("got %d rebinds, want 2", got)
			}
			if err := r.WaitConnected(timeout(t), a.PublicKey(), true); err != nil {
				t.Errorf("no relay connection after Rebind: %v", err)
			}
		})
	}
}

// TestOffline checks that existing connections and peers work without the coordinator.
func TestOffline(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	a.SetOnline(false)
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1000)
	a.SetOnline(true)
	exchange(t, c, 1000)
}

func TestNetcheck(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	n := tailnettest.NewNode(t, r, tailnet.Options{})
	report, err := n.Netcheck(timeout(t))
	if err != nil {
		t.Fatal(err)
	}
	if !report.UDP || !report.IPv4 || report.PreferredRegion != 1 || len(report.Regions) != 1 || report.Regions[0].Latency <= 0 {
		t.Errorf("report: %+v", report)
	}
	text, err := json.Marshal(report)
	if err != nil || !strings.Contains(string(text), `"preferred_region":1`) {
		t.Errorf("report as JSON: %s, %v", text, err)
	}
	if _, err := tailnettest.NewNode(t, nil, tailnet.Options{}).Netcheck(timeout(t)); err == nil {
		t.Error("a check without relays: got no error")
	}
}

// TestCloseEndsEverything checks that handlers, listeners and connections end with the node.
func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	entered, left := make(chan struct{}), make(chan struct{})
	b.HandleTCP(func(_, dst netip.AddrPort) (func(net.Conn), bool) {
		return func(c net.Conn) {
			close(entered)
			c.Read(make([]byte, 1)) // blocks until the node closes
			close(left)
		}, dst.Port() == 7
	})
	l, err := b.Listen(8)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Listen(8); err == nil {
		t.Error("a second listener on a port: got no error")
	}
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-entered
	accepting := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepting <- err
	}()
	b.Close()
	select {
	case <-left:
	default:
		t.Error("a handler still runs after Close returned")
	}
	if err := <-accepting; err == nil {
		t.Error("Accept on a closed node: got no error")
	}
	if _, err := b.Listen(9); err == nil {
		t.Error("Listen on a closed node: got no error")
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("read from a closed node: got %v, want an error other than a timeout", err)
	}
}

func TestPrivateKeyKeepsItsSecret(t *testing.T) {
	t.Parallel()
	k := tailnet.NewPrivateKey()
	text, err := k.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimPrefix(string(text), "privkey:")
	for _, verb := range []string{"%v", "%s", "%+v", "%#v"} {
		if shown := fmt.Sprintf(verb, k); strings.Contains(shown, secret[:16]) {
			t.Errorf("%s shows the key: %s", verb, shown)
		}
	}
	var back tailnet.PrivateKey
	if err := back.UnmarshalText(text); err != nil || back != k {
		t.Errorf("UnmarshalText(MarshalText): got %v, %v, want %v", back, err, k)
	}
	n := tailnettest.NewNode(t, nil, tailnet.Options{Key: k, ID: uuid.New()})
	if n.PublicKey() != k.Public() {
		t.Errorf("node's public key: got %s, want %s", n.PublicKey(), k.Public())
	}
}

func FuzzKeys(f *testing.F) {
	for _, seed := range []string{"", "nodekey:", "privkey:00", "nodekey:" + strings.Repeat("ab", 32), "discokey:" + strings.Repeat("0G", 32)} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var public tailnet.PublicKey
		if public.UnmarshalText(text) == nil && !strings.EqualFold(public.String(), string(text)) {
			t.Errorf("%q was read as %s", text, public)
		}
		var disco tailnet.DiscoKey
		var private tailnet.PrivateKey
		if disco.UnmarshalText(text) == nil && private.UnmarshalText(text) == nil {
			t.Errorf("%q parses as two kinds of key", text)
		}
	})
}
