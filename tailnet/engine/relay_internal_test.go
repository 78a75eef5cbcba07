package engine

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"tailscale.com/derp"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// idleLink returns a link that is never connected.
func idleLink(t *testing.T) *relayLink {
	l := newRelayLink(&Engine{log: slog.New(slog.DiscardHandler)}, Relay{Region: 1}, "host")
	t.Cleanup(l.close)
	return l
}

// TestPeersTakeTurns checks that peers take turns, regardless of how much is queued for each, and that their packets stay
// in order.
func TestPeersTakeTurns(t *testing.T) {
	t.Parallel()
	l := idleLink(t)
	busy, quiet := key.NewNode().Public(), key.NewNode().Public()
	for i := range 100 {
		l.send(busy, append([]byte{byte(i)}, make([]byte, maxPacket-1)...))
	}
	c := &relayConn{over: make(chan struct{})}
	var got []byte
	var first []key.NodePublic
	take := func() {
		peer, data := l.next(c, false)
		if peer == busy {
			got = append(got, data[0])
		}
		if len(first) < 4 {
			first = append(first, peer)
		}
	}
	take()
	take() // its first turn is over
	l.send(quiet, []byte("a"))
	l.send(quiet, []byte("b"))
	for range 100 {
		take()
	}
	if fmt.Sprint(first) != fmt.Sprint([]key.NodePublic{busy, busy, quiet, quiet}) {
		t.Error("a quiet peer's packets had to wait for a busy one's")
	}
	for i, b := range got {
		if int(b) != i {
			t.Fatalf("packet %d came at position %d", b, i)
		}
	}
	if peer, data := l.next(c, false); data != nil {
		t.Errorf("something is left for %s", peer.ShortString())
	}
}

// TestQueueIsBounded checks that a peer's queue is bounded, and that a full queue does not affect other peers.
func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	l := idleLink(t)
	busy, quiet := key.NewNode().Public(), key.NewNode().Public()
	for range 4 * peerQueue / 1000 {
		l.send(busy, make([]byte, 1000))
	}
	l.send(busy, make([]byte, maxPacket+1))
	l.send(quiet, []byte("a"))
	if got := l.queue.BytesOf(busy); got > peerQueue || got < peerQueue-1000 {
		t.Errorf("%d bytes are queued, want at most %d", got, peerQueue)
	}
	if l.queue.BytesOf(quiet) != 1 {
		t.Error("the other peer's packet was dropped")
	}
	l.forget(busy)
	c := &relayConn{over: make(chan struct{})}
	if peer, data := l.next(c, true); peer != quiet || string(data) != "a" {
		t.Errorf("got %q", data)
	}
	if l.queue.Bytes() != 0 {
		t.Error("packets of a peer that is gone are kept")
	}
}

// TestHomeThatWasRemoved checks that a late measurement cannot make a relay the home that has been removed, and that
// the node connects to that relay when it is back.
func TestHomeThatWasRemoved(t *testing.T) {
	t.Parallel()
	homes := make(chan int, 10)
	e := newEngine(t, func(o *Options) {
		o.RelayOnly = true
		o.Home = func(region int) { homes <- region }
	})
	server, region := newRelay(t), newRelay(t)
	region.Region, region.Code = 2, "eu"
	e.SetRelays([]Relay{server}, 1)
	if got := <-homes; got != 1 {
		t.Fatalf("the home is %d", got)
	}
	testwait.Until(t, "the relay is connected", connected(e))
	e.magic.ForceSetNearestDERP(2) // as a measurement does that has seen it
	if got := <-homes; got != 1 {
		t.Errorf("the home is %d, which was removed", got)
	}
	e.SetRelays([]Relay{server, region}, 2)
	if got := <-homes; got != 2 {
		t.Errorf("the home is %d", got)
	}
	testwait.Until(t, "the region is connected", func() error {
		state := e.RelayStates()[2]
		return testwait.Unless(state.Connected, "%+v", state)
	})
}

// TestShimServesThisNodeOnly checks that the shim rejects other users of the machine, who can reach its port.
func TestShimServesThisNodeOnly(t *testing.T) {
	t.Parallel()
	e := newEngine(t, func(o *Options) { o.RelayOnly = true })
	relay := newRelay(t)
	e.SetRelays([]Relay{relay}, 1)
	testwait.Until(t, "the relay is connected", connected(e))
	host := e.link(1).host
	testwait.Until(t, "the shim stops listening", func() error {
		e.shim.mu.Lock()
		defer e.shim.mu.Unlock()
		return testwait.Unless(e.shim.listener == nil, "it listens at port %d", e.shim.port)
	})
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(e.shim.port))
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the shim accepts connections although magicsock already has one")
	}
	if _, err := e.shim.listen(true); err != nil {
		t.Fatal(err)
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(e.shim.port))
	dial := func() net.Conn {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	ask := func(c net.Conn, host, path string) (*http.Response, *bufio.Reader) {
		fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: DERP\r\nConnection: Upgrade\r\n\r\n", path, host)
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp, in
	}
	for _, c := range []struct {
		host, path string
		want       int
	}{
		{"", "/derp", http.StatusForbidden},
		{"localhost", "/derp", http.StatusForbidden},
		{"x" + host, "/derp", http.StatusForbidden},
		{address, "/derp", http.StatusForbidden},
		{host, "/", http.StatusNotFound},
		{host + ":80", "/derp", http.StatusSwitchingProtocols},
	} {
		if c.host == "" {
			c.host = " "
		}
		if resp, _ := ask(dial(), c.host, c.path); resp.StatusCode != c.want {
			t.Errorf("host %q, path %q: got %s, want %d", c.host, c.path, resp.Status, c.want)
		}
	}

	// A client that knows the host name must still prove the node's key.
	for _, prover := range []struct {
		what   string
		secret key.NodePrivate
	}{{"another key", key.NewNode()}, {"the node's own key", e.secret}} {
		what, secret := prover.what, prover.secret
		c := dial()
		_, in := ask(c, host, "/derp")
		client, err := derp.NewClient(secret, c.(derp.Conn), bufio.NewReadWriter(in, bufio.NewWriter(c)), func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		message, err := client.Recv()
		if _, welcomed := message.(derp.ServerInfoMessage); welcomed != (what == "the node's own key") {
			t.Errorf("%s: got %T, %v", what, message, err)
		}
	}
}

// FuzzShim sends frames to the shim as magicsock would.
func FuzzShim(f *testing.F) {
	frame := func(kind derp.FrameType, body []byte) []byte {
		var b bytes.Buffer
		w := bufio.NewWriter(&b)
		derp.WriteFrame(w, kind, body)
		w.Flush()
		return b.Bytes()
	}
	f.Add(frame(derp.FrameSendPacket, make([]byte, 100)))
	f.Add(append(frame(derp.FrameNotePreferred, []byte{1}), frame(derp.FrameSendPacket, make([]byte, 32))...))
	f.Add(frame(derp.FrameSendPacket, make([]byte, derp.KeyLen+maxPacket+1)))
	l := newRelayLink(&Engine{log: slog.New(slog.DiscardHandler)}, Relay{Region: 1}, "host")
	f.Cleanup(l.close)
	f.Fuzz(func(t *testing.T, data []byte) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		c := &shimConn{conn: near, out: bufio.NewWriter(near)}
		if err := c.serve(bufio.NewReader(bytes.NewReader(data)), l); err == nil {
			t.Error("got no error at the end of the input")
		}
		c2 := &relayConn{over: make(chan struct{})}
		for {
			if _, packet := l.next(c2, false); packet == nil {
				break
			} else if len(packet) > maxPacket || len(packet) < 2 {
				t.Errorf("a packet of %d bytes goes to the relay", len(packet))
			}
		}
	})
}

// TestCoalescer checks that frames gather until there is enough data or they are flushed. Until the hello is complete, they
// pass at once.
func TestCoalescer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	wrote := make(chan int, 10)
	go func() {
		buf := make([]byte, 2*coalesce)
		for {
			n, err := far.Read(buf)
			if err != nil {
				close(wrote)
				return
			}
			wrote <- n
		}
	}()
	c := &coalescer{to: near}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Write(make([]byte, 3))
	must(err)
	if n := <-wrote; n != 3 {
		t.Errorf("the hello: %d bytes", n)
	}
	c.gather()
	for range 3 {
		_, err := c.Write(make([]byte, 5))
		must(err)
	}
	select {
	case n := <-wrote:
		t.Errorf("%d bytes were written before a flush", n)
	default:
	}
	must(c.flush())
	if n := <-wrote; n != 15 || !c.empty() {
		t.Errorf("flush wrote %d bytes", n)
	}
	must(c.flush()) // nothing
	_, err = c.Write(make([]byte, coalesce))
	must(err)
	if n := <-wrote; n != coalesce {
		t.Errorf("enough for a write: %d bytes were written", n)
	}
	near.Close()
	if _, err := c.Write(make([]byte, coalesce)); err == nil {
		t.Error("the end of the connection is not reported")
	}
	for range wrote {
	}
}

// TestOwnRelayWaitsForTheCoordinator: while the coordinator is away, its own relay cannot admit this node, and is tried rarely. Others are tried as usual,
// and so is the coordinator's own once it is back.
func TestOwnRelayWaitsForTheCoordinator(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, online bool
		low, high   time.Duration
	}{
		{true, false, offlineRetry / 2, offlineRetry},
		{true, true, minRelayRetry / 2, minRelayRetry},
		{false, false, minRelayRetry / 2, minRelayRetry},
		{false, true, minRelayRetry / 2, minRelayRetry},
	} {
		e := &Engine{log: slog.New(slog.DiscardHandler)}
		e.online.Store(c.online)
		l := newRelayLink(e, Relay{Region: 1, Coordinators: c.own}, "host")
		t.Cleanup(l.close)
		if d := l.pause(&backoff.Backoff{Min: minRelayRetry, Max: maxRelayRetry}); d < c.low || d > c.high {
			t.Errorf("own %t, online %t: it waits %s, want %s to %s", c.own, c.online, d, c.low, c.high)
		}
	}
}
