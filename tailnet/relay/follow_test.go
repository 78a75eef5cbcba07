package relay_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// meshed is a relay of a mesh, with a web server that can be killed.
type meshed struct {
	*relay.Server
	url      *url.URL
	web      *httptest.Server
	followed net.Listener // for other relays

	mu    sync.Mutex
	conns []net.Conn // of other relays
}

func newMeshed(t *testing.T, meshKey byte) *meshed {
	t.Helper()
	s, err := relay.New(relay.Options{Logger: tailnettest.Logger(t), MeshKey: [32]byte{meshKey}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/derp", s.Handler())
	mux.Handle("/derp/", s.Handler())
	r := &meshed{Server: s, web: httptest.NewServer(mux)}
	t.Cleanup(func() { r.Close(); r.web.Close() })
	if r.followed, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	r.serveRelays(t)
	if r.url, err = url.Parse(r.web.URL); err != nil {
		t.Fatal(err)
	}
	return r
}

// dial opens a connection to the relay for another one.
func (m *meshed) dial(ctx context.Context) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", m.followed.Addr().String())
}

// serveRelays serves other relays until the listener is closed.
func (m *meshed) serveRelays(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := m.followed.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				m.mu.Lock()
				m.conns = append(m.conns, conn)
				m.mu.Unlock()
				m.ServeRelay(ctx, conn)
			})
		}
	})
	t.Cleanup(func() {
		m.followed.Close()
		cancel()
		serving.Wait()
	})
}

// cut ends the connections with all nodes and other relays.
func (m *meshed) cut() {
	m.web.CloseClientConnections()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, conn := range m.conns {
		conn.Close()
	}
}

// follow makes relays follow each other until the test ends.
func follow(t *testing.T, relays ...*meshed) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	for _, from := range relays {
		for _, to := range relays {
			if from != to {
				following.Go(func() { from.Follow(ctx, to.url.String(), to.dial) })
			}
		}
	}
	t.Cleanup(func() { cancel(); following.Wait() })
}

// member connects a node to a relay. All relays of the mesh admit it, unless admit is false.
func member(t *testing.T, home *meshed, relays ...*meshed) *tailnet.Node {
	t.Helper()
	n := tailnettest.NewNode(t, nil, tailnet.Options{RelayOnly: true})
	for _, r := range relays {
		r.Admit(n.PublicKey())
	}
	if err := n.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "server"}}}, home.url); err != nil {
		t.Fatal(err)
	}
	if err := home.WaitConnected(timeout(t), n.PublicKey(), true); err != nil {
		t.Fatal(err)
	}
	return n
}

// echoes dials until the peer answers: the relays learn of each other's nodes in the background.
func echoes(t *testing.T, from, to *tailnet.Node) net.Conn {
	t.Helper()
	all := timeout(t)
	for {
		ctx, cancel := context.WithTimeout(all, 3*time.Second)
		conn, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(to.Addr(), 7))
		cancel()
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		if all.Err() != nil {
			t.Fatal(err)
		}
	}
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// TestMesh checks that nodes reach each other through two relays, and still do when one of them moves to the other's relay.
func TestMesh(t *testing.T) {
	t.Parallel()
	one, two := newMeshed(t, 1), newMeshed(t, 1)
	follow(t, one, two)
	a, b := member(t, one, one, two), member(t, two, one, two)
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	conn := echoes(t, a, b)
	say(t, conn, "across")
	for _, r := range []*meshed{one, two} {
		if carried := r.Traffic(); carried.ForwardedOut == 0 || carried.ForwardedIn == 0 {
			t.Errorf("%s forwarded %d packets and received %d", r.url, carried.ForwardedOut, carried.ForwardedIn)
		}
	}
	if here, _ := one.Home(a.PublicKey()); !here {
		t.Error("the first relay does not know its own node")
	}
	if here, base := one.Home(b.PublicKey()); here || base != two.url.String() {
		t.Errorf("the first relay reports %t, %q for the other's node", here, base)
	}
	if status := one.Following(); len(status) != 1 || status[0].Name != two.url.String() || status[0].Since.IsZero() || status[0].Err != "" || status[0].Nodes != 1 {
		t.Errorf("the first relay follows %+v", status)
	}
	if err := b.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "server"}}}, one.url); err != nil {
		t.Fatal(err)
	}
	if err := one.WaitConnected(timeout(t), b.PublicKey(), true); err != nil {
		t.Fatal(err)
	}
	say(t, conn, "moved")

	// A revoked node is cut off at the relay that it uses.
	one.Revoke(b.PublicKey())
	two.Revoke(b.PublicKey())
	if err := one.WaitConnected(timeout(t), b.PublicKey(), false); err != nil {
		t.Fatal(err)
	}
}

// TestMeshOfStrangers checks that a relay with another key learns nothing and forwards nothing.
func TestMeshOfStrangers(t *testing.T) {
	t.Parallel()
	one, stranger := newMeshed(t, 1), newMeshed(t, 2)
	follow(t, one, stranger)
	a, b := member(t, one, one), member(t, stranger, stranger)
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if conn, err := a.Dial(ctx, "tcp", netip.AddrPortFrom(b.Addr(), 7)); err == nil {
		conn.Close()
		t.Fatal("a packet reached a node of another deployment's relay")
	}
	if here, base := one.Home(b.PublicKey()); here || base != "" {
		t.Errorf("the relay knows the stranger's node: %t, %q", here, base)
	}
}

// TestFollowNothing checks what a relay reports about one that does not answer.
func TestFollowNothing(t *testing.T) {
	t.Parallel()
	one, two := newMeshed(t, 1), newMeshed(t, 1)
	two.followed.Close()
	follow(t, one, two)
	for ctx := timeout(t); ; {
		if status := one.Following(); len(status) == 1 && status[0].Since.IsZero() && strings.Contains(status[0].Err, "refused") {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the relay follows %+v", one.Following())
		}
		runtime.Gosched()
	}
}

// TestMeshReturns checks that a relay is followed again after its connections were cut.
func TestMeshReturns(t *testing.T) {
	t.Parallel()
	one, two := newMeshed(t, 1), newMeshed(t, 1)
	follow(t, one, two)
	a, b := member(t, one, one, two), member(t, two, one, two)
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	conn := echoes(t, a, b)
	say(t, conn, "before")
	two.cut()
	one.cut()
	say(t, conn, "after")
}

// TestEarlyNode checks that a node which connects just before it is admitted need not try again.
func TestEarlyNode(t *testing.T) {
	t.Parallel()
	r := newMeshed(t, 1)
	n := tailnettest.NewNode(t, nil, tailnet.Options{RelayOnly: true})
	if err := n.SetRelayMap(tailnet.RelayMap{Regions: []tailnet.RelayRegion{{ID: 1, Code: "server"}}}, r.url); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { r.Admit(n.PublicKey()) })
	if err := r.WaitConnected(timeout(t), n.PublicKey(), true); err != nil {
		t.Fatal(err)
	}
	if link := n.Status().Relays[0]; link.Err != "" {
		t.Errorf("the node was refused first: %s", link.Err)
	}
}
