package tailnet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/pprof"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		playRole(role)
		return
	}
	goleak.VerifyTestMain(m)
}

func timeout(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	t.Cleanup(cancel)
	return ctx
}

func at(n *tailnet.Node, port uint16) netip.AddrPort { return netip.AddrPortFrom(n.Addr(), port) }

// exchange sends data both ways over an echo connection.
func exchange(t *testing.T, c net.Conn, size int) {
	t.Helper()
	sent := bytes.Repeat([]byte("mesh"), size/4)
	go c.Write(sent)
	got := make([]byte, len(sent))
	if n, err := testwait.ReadFull(c, got); err != nil {
		// Where every goroutine waits shows whether packets are lost or an end is stuck.
		if err := pprof.Lookup("goroutine").WriteTo(t.Output(), 1); err != nil {
			t.Log(err)
		}
		t.Fatalf("read echo: %v after %d of %d bytes", err, n, size)
	}
	if !bytes.Equal(got, sent) {
		t.Fatal("the echo differs from what was sent")
	}
}

func TestDirect(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundPorts(7))

	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<20)
	if got, want := c.RemoteAddr().String(), at(b, 7).String(); got != want {
		t.Errorf("RemoteAddr: got %s, want %s", got, want)
	}
	pong := tailnettest.WaitPath(t, a, b, tailnet.PathDirect)
	if !pong.Endpoint.IsValid() {
		t.Errorf("pong of a direct path has no endpoint: %+v", pong)
	}
	status := a.Status()
	if len(status.Peers) != 1 || status.Peers[0].ID != b.ID() || status.Peers[0].Path != tailnet.PathDirect || status.Peers[0].Rx < 1<<20 {
		t.Errorf("status of one direct peer that sent 1 MiB: %+v", status.Peers)
	}
}

// TestMovedPeer checks that no packets go to the old endpoint of a node that reports that it has moved, and that
// connections continue through the relay.
func TestMovedPeer(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundPorts(7))
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<10)
	tailnettest.WaitPath(t, a, b, tailnet.PathDirect)
	// b comes back at the same address here, and would find a again from there.
	other := b.Peers()[0]
	other.Moves, other.Seq, other.Endpoints = other.Moves+1, other.Seq+1, nil
	if err := b.Upsert(other); err != nil {
		t.Fatal(err)
	}
	known := a.Peers()[0]
	before := b.Info()
	b.Rebind("test")
	info := b.Info()
	if info.Moves <= before.Moves || info.Seq <= before.Seq {
		t.Errorf("info after Rebind: %+v, before: %+v", info, before)
	}
	info.Endpoints = nil // it is no longer reachable there
	known.NodeInfo = info
	if err := a.Upsert(known); err != nil {
		t.Fatal(err)
	}
	if status := a.Status(); status.Peers[0].Path == tailnet.PathDirect {
		t.Errorf("a still sends to %s", status.Peers[0].Endpoint)
	}
	exchange(t, c, 1<<10)
}

// TestEndpointsToldLater checks that a peer with unknown endpoints is reached through the relay, that a node looks for a
// direct path as soon as it receives them, and that they remain known until they are replaced or the peer moves.
func TestEndpointsToldLater(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	whole := map[*tailnet.Node]tailnet.Peer{a: {NodeInfo: b.Info()}, b: {NodeInfo: a.Info(), Inbound: tailnet.InboundAll}}
	tell := func(n *tailnet.Node, endpoints bool) {
		t.Helper()
		p := whole[n]
		if !endpoints {
			p.Endpoints = nil
		}
		if err := n.Upsert(p); err != nil {
			t.Fatal(err)
		}
	}
	tell(b, false)
	tell(a, false)
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<10)
	if p := a.Status().Peers[0]; p.Path != tailnet.PathRelay {
		t.Errorf("without endpoints: %+v", p)
	}
	tell(b, true) // which sends nothing unprompted
	for ctx := timeout(t); b.Status().Peers[0].Path != tailnet.PathDirect; {
		select {
		case <-ctx.Done():
			t.Fatalf("no direct path: %+v", b.Status().Peers[0])
		case <-time.After(10 * time.Millisecond):
		}
	}
	tell(b, false)
	if p := b.Peers()[0]; len(p.Endpoints) == 0 || b.Status().Peers[0].Path != tailnet.PathDirect {
		t.Errorf("update without endpoints: %+v, %+v", p, b.Status().Peers[0])
	}
}

// TestMeasured checks that a node knows whether it is behind a NAT as soon as a STUN server has answered, at once where
// there is none, and again after it has moved.
func TestMeasured(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	n := tailnettest.NewNode(t, r, tailnet.Options{})
	settled := func() {
		t.Helper()
		for ctx := timeout(t); !n.Info().Measured; {
			select {
			case <-ctx.Done():
				t.Fatalf("not measured: %+v", n.Info())
			case <-n.Changed():
			}
		}
	}
	settled()
	if info := n.Info(); info.Mapped.IsValid() {
		t.Errorf("a node without a NAT: %+v", info)
	}
	n.Rebind("test")
	settled()
	r.Map.Regions[0].STUNPort = 0
	if info := tailnettest.NewNode(t, r, tailnet.Options{}).Info(); !info.Measured {
		t.Errorf("without a STUN server: %+v", info)
	}
}

func TestRelayOnly(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: true}), tailnettest.NewNode(t, r, tailnet.Options{})
	if info := a.Info(); info.Region != 1 || len(info.Endpoints) != 0 {
		t.Errorf("info of a relay-only node right after SetRelayMap: %+v", info)
	}
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<20)
	pong, err := a.Ping(timeout(t), b.ID())
	if err != nil || pong.Direct || pong.Region != "test" {
		t.Errorf("ping: got %+v, %v, want an answer through the relay", pong, err)
	}
	if peers := a.Status().Peers; len(peers) != 1 || peers[0].Path != tailnet.PathRelay || peers[0].Region != "test" {
		t.Errorf("status: got %+v, want one relayed peer", peers)
	}
	if relays := a.Status().Relays; len(relays) != 1 || relays[0].Latency <= 0 {
		t.Errorf("status: got %+v, want the relay's latency", relays)
	}
	if report, err := a.Netcheck(timeout(t)); err != nil || report.PreferredRegion != 1 || len(report.Regions) != 1 || report.Regions[0].Latency <= 0 {
		t.Errorf("report: got %+v, %v, want the relay and its latency", report, err)
	}
}

func TestInfoHasRegionAtOnce(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	n := tailnettest.NewNode(t, r, tailnet.Options{})
	info := n.Info()
	if info.Region != 1 || len(info.Endpoints) == 0 || info.Addr() != n.Addr() {
		t.Fatalf("info right after SetRelayMap: %+v", info)
	}
	select {
	case <-n.Changed():
	default:
		t.Error("SetRelayMap changed Info, but Changed did not receive")
	}
}

// TestFreshPairs dials fresh pairs of nodes, where the first handshake is occasionally lost, and logs how long each dial takes.
func TestFreshPairs(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	for _, relayOnly := range []bool{false, true} {
		for range 10 {
			a := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: relayOnly})
			b := tailnettest.NewNode(t, r, tailnet.Options{RelayOnly: relayOnly})
			tailnettest.Echo(t, b, 7)
			tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
			start := time.Now()
			c, err := a.Dial(timeout(t), "tcp", at(b, 7))
			if err != nil {
				t.Fatalf("dial (relay only: %t): %v\nfrom %+v\nto %+v", relayOnly, err, a.Status(), b.Status())
			}
			t.Logf("dialed in %s", time.Since(start))
			c.Close()
			a.Close()
			b.Close()
		}
	}
}

func TestDialErrors(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	if _, err := a.Dial(timeout(t), "tcp", at(b, 7)); !errors.Is(err, tailnet.ErrUnknownPeer) {
		t.Errorf("dial a stranger: got %v, want %v", err, tailnet.ErrUnknownPeer)
	}
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	if _, err := a.Dial(timeout(t), "tcp", at(b, 7)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial a closed port: got %v, want %v", err, syscall.ECONNREFUSED)
	}
	a.Close()
	if _, err := a.Dial(timeout(t), "tcp", at(b, 7)); !errors.Is(err, tailnet.ErrClosed) {
		t.Errorf("dial on a closed node: got %v, want %v", err, tailnet.ErrClosed)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestUDP(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	b.HandleUDP(func(_, dst netip.AddrPort) (func(net.Conn), bool) {
		return func(c net.Conn) {
			defer c.Close()
			buf := make([]byte, 1500)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				c.Write(buf[:n])
			}
		}, dst.Port() == 53
	})
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundPorts(53))
	c, err := a.Dial(timeout(t), "udp", at(b, 53))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	if err != nil || string(buf[:n]) != "question" {
		t.Fatalf("read echo: got %q, %v", buf[:n], err)
	}
}

// TestPartingWords checks that the last data a node writes before it closes arrives, followed by the end of the connection.
func TestPartingWords(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	l, err := b.Listen(9)
	if err != nil {
		t.Fatal(err)
	}
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := a.Dial(timeout(t), "tcp", at(b, 9))
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("farewell")); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		got []byte
		err error
	}
	read := make(chan outcome, 1)
	go func() {
		defer far.Close()
		far.SetReadDeadline(time.Now().Add(20 * time.Second))
		got, err := io.ReadAll(far)
		read <- outcome{got, err}
	}()
	a.Close()
	if end := <-read; end.err != nil || string(end.got) != "farewell" {
		t.Fatalf("the other end got %q, %v; want %q and EOF", end.got, end.err, "farewell")
	}
}

// TestNothingStaysOfAPeer checks that data and FINs that a peer did not acknowledge are not retransmitted forever, nor
// kept once the peer is gone.
func TestNothingStaysOfAPeer(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	accepted := make(chan net.Conn, 2)
	l, err := b.Listen(7)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	var conns []net.Conn
	for range 2 {
		c, err := a.Dial(timeout(t), "tcp", at(b, 7))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, <-accepted)
	}
	a.Remove(b.ID()) // a is deaf from now on
	for _, c := range conns {
		if err := c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = c.Write(make([]byte, 1<<16))
		}
		if e, ok := errors.AsType[net.Error](err); !ok || !e.Timeout() {
			t.Fatalf("write to a removed peer: %v", err)
		}
		err = nil
	}
	conns[0].Close()
	if tailnet.Over(conns[0]) || tailnet.Over(conns[1]) {
		t.Error("a connection is over while its peer may still answer")
	}
	b.Remove(a.ID())
	for i, c := range conns {
		if !tailnet.Over(c) {
			t.Errorf("connection %d outlives its peer", i)
		}
	}
}

func TestRestartedPeer(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a := tailnettest.NewNode(t, r, tailnet.Options{})
	id, key := uuid.New(), tailnet.NewPrivateKey()
	for _, k := range []tailnet.PrivateKey{key, key, tailnet.NewPrivateKey()} { // restarted with its key, then with a new one
		b := tailnettest.NewNode(t, r, tailnet.Options{ID: id, Key: k})
		tailnettest.Echo(t, b, 7)
		if err := b.Upsert(tailnet.Peer{NodeInfo: a.Info(), Inbound: tailnet.InboundAll}); err != nil {
			t.Fatal(err)
		}
		if err := a.Upsert(tailnet.Peer{NodeInfo: b.Info()}); err != nil {
			t.Fatal(err)
		}
		c, err := a.Dial(timeout(t), "tcp", at(b, 7))
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, 1000)
		b.Close()
		c.Close()
	}
}

func TestUpsertRefuses(t *testing.T) {
	t.Parallel()
	a, b := tailnettest.NewNode(t, nil, tailnet.Options{}), tailnettest.NewNode(t, nil, tailnet.Options{})
	good := b.Info()
	change := func(f func(*tailnet.NodeInfo)) tailnet.Peer {
		info := good
		f(&info)
		return tailnet.Peer{NodeInfo: info}
	}
	if err := a.Upsert(tailnet.Peer{NodeInfo: good}); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]tailnet.Peer{
		"no id":              change(func(i *tailnet.NodeInfo) { i.ID = uuid.Nil }),
		"no key":             change(func(i *tailnet.NodeInfo) { i.Key = tailnet.PublicKey{} }),
		"no disco key":       change(func(i *tailnet.NodeInfo) { i.Disco = tailnet.DiscoKey{} }),
		"own id":             change(func(i *tailnet.NodeInfo) { i.ID = a.ID() }),
		"own key":            change(func(i *tailnet.NodeInfo) { i.Key = a.PublicKey() }),
		"another node's key": change(func(i *tailnet.NodeInfo) { i.ID = uuid.New() }),
		"odd region":         change(func(i *tailnet.NodeInfo) { i.Region = 1 << 20 }),
	} {
		if err := a.Upsert(p); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	if peers := a.Peers(); len(peers) != 1 || peers[0].ID != b.ID() {
		t.Errorf("peers after rejected ones: %+v", peers)
	}
}

// TestCloseAfterManyConnections checks that Close completes after any number of recent connections: more than the stack's
// queue holds when nothing drains it.
func TestCloseAfterManyConnections(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	tailnettest.Echo(t, b, 7)
	for i := range 600 {
		ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience) // for one: how long all take depends on the machine
		conn, err := a.Dial(ctx, "tcp", netip.AddrPortFrom(b.Addr(), 7))
		cancel()
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if err := conn.Close(); err != nil { // the end that closes first remembers the connection for a minute
			t.Fatal(err)
		}
	}
	closed := make(chan struct{})
	go func() { defer close(closed); a.Close() }()
	select {
	case <-closed:
	case <-time.After(30 * time.Second):
		t.Fatal("Close did not return")
	}
}

// TestRelayMapTurnsDirectPathsOff: a node that the relay map keeps from direct paths leaves the one that it has, tells no
// one where it is, and goes through the relay although its peer follows another map. Later maps may allow direct paths.
func TestRelayMapTurnsDirectPathsOff(t *testing.T) {
	t.Parallel()
	r := tailnettest.NewRelay(t)
	a, b := tailnettest.NewNode(t, r, tailnet.Options{}), tailnettest.NewNode(t, r, tailnet.Options{})
	tailnettest.Echo(t, b, 7)
	tailnettest.Introduce(t, a, b, tailnet.InboundNone, tailnet.InboundAll)
	c, err := a.Dial(timeout(t), "tcp", at(b, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	exchange(t, c, 1<<10)
	tailnettest.WaitPath(t, a, b, tailnet.PathDirect)

	closed := r.Map
	closed.RelayOnly = true
	if err := a.SetRelayMap(closed, r.URL); err != nil {
		t.Fatal(err)
	}
	if info := a.Info(); len(info.Endpoints) != 0 || info.Mapped.IsValid() || !info.Measured {
		t.Errorf("info of a node without direct paths: %+v", info)
	}
	tailnettest.WaitPath(t, a, b, tailnet.PathRelay)
	tailnettest.WaitPath(t, b, a, tailnet.PathRelay)
	exchange(t, c, 1<<20)
	if pong, err := a.Ping(timeout(t), b.ID()); err != nil || pong.Direct {
		t.Errorf("ping: got %+v, %v, want an answer through the relay", pong, err)
	}
	if err := a.SetRelayMap(r.Map, r.URL); err != nil {
		t.Fatal(err)
	}
	tailnettest.WaitPath(t, a, b, tailnet.PathDirect)
	exchange(t, c, 1<<10)
}
