package engine

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"go.uber.org/goleak"
	"tailscale.com/derp/derpserver"
	"tailscale.com/types/key"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = testwait.Patience

func timeout(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newRelay starts a relay that admits everyone.
func newRelay(t testing.TB) Relay {
	t.Helper()
	s := derpserver.New(key.NewNode(), func(string, ...any) {})
	web := httptest.NewServer(derpserver.AddWebSocketSupport(s, derpserver.Handler(s)))
	t.Cleanup(func() {
		s.Close()
		web.Close()
	})
	u, err := url.Parse(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	return Relay{Region: 1, Code: "test", Name: "Test", URL: u}
}

// newEngine starts an engine with callbacks that admit everything and echo every connection and flow, unless change
// overrides them.
func newEngine(t testing.TB, change func(*Options)) *Engine {
	t.Helper()
	secret := key.NewNode().Raw32()
	sum := sha256.Sum256(secret[:])
	addr := netip.MustParseAddr("fd00::").As16()
	copy(addr[6:], sum[:10])
	opts := Options{
		Key: secret, Addr: netip.AddrFrom16(addr), Name: t.Name(), Log: slog.New(slog.DiscardHandler),
		Admit:     func(netip.Addr, uint16) bool { return true },
		AdmitEcho: func(netip.Addr) bool { return true },
		AcceptTCP: func(netip.AddrPort, netip.AddrPort) func(Conn) {
			return func(c Conn) {
				defer c.Close()
				io.Copy(c, c)
			}
		},
		AcceptUDP: func(netip.AddrPort, netip.AddrPort) func(*UDPConn) {
			return func(c *UDPConn) {
				defer c.Close()
				buf := make([]byte, 2048)
				c.SetReadDeadline(time.Now().Add(patience))
				if n, err := c.Read(buf); err == nil {
					c.Write(buf[:n])
				}
			}
		},
		Session: func(Key, bool) {}, Endpoints: func([]Endpoint) {}, Home: func(int) {}, Moved: func(string) {},
	}
	if change != nil {
		change(&opts)
	}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// about returns what others must know about an engine.
func about(e *Engine, endpoints ...netip.AddrPort) Peer {
	return Peer{Key: rawOf(e.public), Addr: e.opts.Addr, Disco: e.Disco(), Region: 1, Endpoints: endpoints, Name: "peer"}
}

// local returns the address of an engine on this machine.
func local(e *Engine) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), e.LocalPort())
}

// relayed returns two engines that know each other through a relay, without a direct path.
func relayed(t testing.TB, change func(*Options)) (a, b *Engine) {
	t.Helper()
	relay := newRelay(t)
	only := func(o *Options) {
		o.RelayOnly = true
		if change != nil {
			change(o)
		}
	}
	a, b = newEngine(t, only), newEngine(t, only)
	for _, e := range []*Engine{a, b} {
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
	}
	a.Upsert(about(b))
	b.Upsert(about(a))
	return a, b
}

// direct returns two engines that know each other's endpoints, without a relay.
func direct(t testing.TB, change func(*Options)) (a, b *Engine) {
	t.Helper()
	a, b = newEngine(t, change), newEngine(t, change)
	a.Upsert(about(b, local(b)))
	b.Upsert(about(a, local(a)))
	testwait.Until(t, "the path is proven at both ends", func() error {
		a.Ping(rawOf(b.public), func(Pong) {})
		b.Ping(rawOf(a.public), func(Pong) {})
		ofA, ofB := a.PeerStates()[rawOf(b.public)], b.PeerStates()[rawOf(a.public)]
		return testwait.Unless(ofA.Endpoint.IsValid() && ofB.Endpoint.IsValid(), "%+v and %+v", ofA, ofB)
	})
	return a, b
}

// exchange sends bytes to a port of the peer and reads them back.
func exchange(t testing.TB, a, b *Engine, size int) {
	t.Helper()
	c, err := a.DialTCP(timeout(t), netip.AddrPortFrom(b.opts.Addr, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent := make([]byte, size)
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	go func() {
		c.Write(sent)
		c.CloseWrite()
	}()
	got := make([]byte, size)
	if n, err := testwait.ReadFull(c, got); err != nil || string(got) != string(sent) {
		t.Fatalf("got %d bytes back, %v; want %d", n, err, size)
	}
	if n, err := testwait.ReadFull(c, got[:1]); n != 0 || !errors.Is(err, io.EOF) {
		t.Fatalf("after the echo: read %d bytes, %v", n, err)
	}
}
