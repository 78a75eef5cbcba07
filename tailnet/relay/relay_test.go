package relay_test

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"tailscale.com/net/stun"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestAdmission(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	n := tailnettest.NewNode(t, nil, tailnet.Options{})
	if err := n.SetRelayMap(r.Map, r.URL); err != nil {
		t.Fatal(err)
	}
	for problem := ""; problem == ""; { // refused
		select {
		case <-timeout(t).Done():
			t.Fatal("a node that is not admitted reports no problem with its relay")
		case <-time.After(10 * time.Millisecond):
		}
		link := n.Status().Relays[0]
		if link.Connected || r.Connected() != 0 {
			t.Fatal("a node that is not admitted connected")
		}
		problem = link.Err
	}
	if n.Status().Relays[0].Websocket {
		t.Error("the node took the refusal for a proxy's")
	}

	r.Admit(n.PublicKey())
	if err := r.WaitConnected(timeout(t), n.PublicKey(), true); err != nil {
		t.Fatalf("admitted node does not connect: %v", err)
	}

	r.Revoke(n.PublicKey())
	if err := r.WaitConnected(timeout(t), n.PublicKey(), false); err != nil {
		t.Fatalf("revoked node stays: %v", err)
	}
	n.Rebind("try again")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := r.WaitConnected(ctx, n.PublicKey(), true); err == nil {
		t.Error("a revoked node connected again")
	}
}

// TestRevokedPairIsCut checks that traffic between two nodes through the relay ends when one of them is revoked.
func TestRevokedPairIsCut(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true})
	b := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := a.Dial(timeout(t), "tcp", netip.AddrPortFrom(b.Addr(), 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.Revoke(a.PublicKey())
	if err := r.WaitConnected(timeout(t), a.PublicKey(), false); err != nil {
		t.Fatal(err)
	}
	c.Write([]byte("anyone?"))
	c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
	if n, err := c.Read(make([]byte, 10)); err == nil {
		t.Errorf("read %d bytes through a relay that revoked the key", n)
	}
}

// TestFailsClosed checks that a closed relay does not answer admission requests, and that one relay does not answer for another.
func TestFailsClosed(t *testing.T) {
	t.Parallel()
	one, other := tailnettest.NewRelay(t), tailnettest.NewRelay(t)
	n := tailnettest.NewNode(t, nil, tailnet.Options{})
	other.Admit(n.PublicKey())
	if err := n.SetRelayMap(one.Map, one.URL); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := one.WaitConnected(ctx, n.PublicKey(), true); err == nil {
		t.Error("a node that only another relay admits connected")
	}
	if err := one.Close(); err != nil {
		t.Error(err)
	}
	if err := one.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := one.ListenSTUN("127.0.0.1:0"); err == nil {
		t.Error("ListenSTUN on a closed relay: got no error")
	}
}

// wrapped hides the Hijacker, as middleware does.
type wrapped struct{ inner http.ResponseWriter }

func (w wrapped) Header() http.Header         { return w.inner.Header() }
func (w wrapped) Write(b []byte) (int, error) { return w.inner.Write(b) }
func (w wrapped) WriteHeader(status int)      { w.inner.WriteHeader(status) }
func (w wrapped) Unwrap() http.ResponseWriter { return w.inner }

func TestBehindMiddleware(t *testing.T) {
	t.Parallel()
	s, err := relay.New(relay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Handler().ServeHTTP(wrapped{wrapped{w}}, r)
	}))
	defer web.Close()
	defer s.Close()
	n := tailnettest.NewNode(t, nil, tailnet.Options{})
	s.Admit(n.PublicKey())
	m := tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 5, Code: "x", URL: web.URL}}}
	if err := n.SetRelayMap(m, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitConnected(timeout(t), n.PublicKey(), true); err != nil {
		t.Fatalf("node behind middleware does not connect: %v", err)
	}
	resp, err := http.Get(web.URL + "/derp/latency-check")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("latency check: got %s", resp.Status)
	}
	http.DefaultClient.CloseIdleConnections()
	n.Close()
}

func TestSTUN(t *testing.T) {
	t.Parallel()
	s, err := relay.New(relay.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	port, err := s.ListenSTUN("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialUDP("udp", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id := stun.NewTxID()
	for _, datagram := range [][]byte{nil, []byte("noise"), bytes.Repeat([]byte{0xff}, 1400), stun.Request(id)[:20], stun.Request(id)} {
		if _, err := c.Write(datagram); err != nil {
			t.Fatal(err)
		}
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	gotID, addr, err := stun.ParseResponse(buf[:n])
	if err != nil || gotID != id || addr.String() != c.LocalAddr().String() {
		t.Errorf("response: got %v, %s, %v; want %s", gotID, addr, err, c.LocalAddr())
	}
}
