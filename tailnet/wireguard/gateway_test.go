package wireguard_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/device"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/wireguardtest"
)

var (
	prefix  = netip.MustParsePrefix("fd00:c0de::/48")
	own     = netip.MustParseAddr("fd00:c0de::1")
	echoes  = netip.MustParseAddrPort("[fd00:c0de::a]:7") // echoes TCP and UDP, and answers pings
	refused = netip.MustParseAddrPort("[fd00:c0de::b]:7")
	slow    = netip.MustParseAddrPort("[fd00:c0de::d]:7") // accepts when the world says so
)

// world is the owner of a gateway.
type world struct {
	*wireguard.Gateway
	key       wireguard.Key
	sources   sync.Map // addresses that opened something
	seen      chan []wireguard.Sighting
	strangers chan netip.AddrPort
	asked     chan netip.AddrPort // who wants slow
	accept    chan struct{}       // lets slow accept
	accepted  chan wireguard.Conn // what slow has got
}

func newWorld(t testing.TB, key wireguard.Key, port uint16) *world {
	t.Helper()
	w := &world{key: key, seen: make(chan []wireguard.Sighting, 100), strangers: make(chan netip.AddrPort, 100)}
	w.asked, w.accept, w.accepted = make(chan netip.AddrPort, 10), make(chan struct{}), make(chan wireguard.Conn, 10)
	allow := func(src, dst netip.AddrPort) bool {
		w.sources.Store(src.Addr(), true)
		return dst == echoes
	}
	g, err := wireguard.New(wireguard.Options{
		PrivateKey: key, Port: port, Addr: own, Prefix: prefix,
		AcceptTCP: func(src, dst netip.AddrPort) func(wireguard.Conn) {
			if dst == slow {
				w.asked <- src
				<-w.accept
				return func(c wireguard.Conn) { w.accepted <- c }
			}
			if !allow(src, dst) {
				return nil
			}
			return func(c wireguard.Conn) {
				if c == nil {
					return
				}
				defer c.Close()
				_, _ = io.Copy(c, c)
			}
		},
		AcceptUDP: func(src, dst netip.AddrPort) func(net.Conn) {
			if !allow(src, dst) {
				return nil
			}
			return func(c net.Conn) {
				defer c.Close()
				buf := make([]byte, 2000)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					_, _ = c.Write(buf[:n])
				}
			}
		},
		Echo:     func(_, dst netip.Addr) bool { return dst == echoes.Addr() },
		Seen:     func(s []wireguard.Sighting) { w.seen <- s },
		Stranger: func(at netip.AddrPort) { w.strangers <- at },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway = g
	return w
}

func start(t *testing.T) *world {
	t.Helper()
	key, _ := wireguardtest.NewKey(t)
	w := newWorld(t, key, 0)
	t.Cleanup(w.Close)
	return w
}

// phone is a device, and what the gateway knows of it.
type phone struct {
	*wireguardtest.Device
	peer wireguard.Peer
}

func newPhone(t *testing.T, w *world, addr string, private, public wireguard.Key) *phone {
	t.Helper()
	gateway, err := wireguard.PublicKey(w.key)
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddr(addr)
	return &phone{wireguardtest.New(t, private, at, gateway, w.Port(), prefix), wireguard.Peer{Key: public, Addr: at}}
}

// add makes a phone that the gateway knows.
func add(t *testing.T, w *world, addr string) *phone {
	t.Helper()
	private, public := wireguardtest.NewKey(t)
	p := newPhone(t, w, addr, private, public)
	if err := w.Set(p.peer); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *phone) dial(t *testing.T, to netip.AddrPort) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testwait.Patience)
	defer cancel()
	c, err := p.DialContextTCPAddrPort(ctx, to)
	if err != nil {
		t.Fatalf("dial %s: %v", to, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// exchange sends n bytes, and expects them back.
func exchange(t *testing.T, c net.Conn, n int) {
	t.Helper()
	sent := make([]byte, n)
	rand.Read(sent)
	go c.Write(sent)
	got := make([]byte, n)
	if n, err := testwait.ReadFull(c, got); err != nil {
		t.Fatalf("after %d bytes: %v", n, err)
	}
	if !bytes.Equal(sent, got) {
		t.Fatal("other bytes came back")
	}
}

// ask sends a packet again and again until it is answered: packets get lost, and a connection for echo requests sees only the answers that come
// while it is read.
func ask(t *testing.T, c net.Conn, packet []byte) []byte {
	t.Helper()
	ctx, answered := context.WithCancel(t.Context())
	var sender sync.WaitGroup
	defer sender.Wait()
	defer answered()
	sender.Go(func() {
		for again := time.NewTicker(50 * time.Millisecond); ; {
			if _, err := c.Write(packet); err != nil {
				t.Errorf("send a packet: %v", err)
				return
			}
			select {
			case <-again.C:
			case <-ctx.Done():
				return
			}
		}
	})
	if err := c.SetReadDeadline(time.Now().Add(testwait.Patience)); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 2000)
	n, err := c.Read(answer)
	if err != nil {
		t.Fatalf("no packet is answered: %v", err)
	}
	return answer[:n]
}

func TestDevice(t *testing.T) {
	t.Parallel()
	w := start(t)
	p := add(t, w, "fd00:c0de:0:1::1")
	t.Run("TCP", func(t *testing.T) { exchange(t, p.dial(t, echoes), 1<<20) })
	t.Run("UDP", func(t *testing.T) {
		c, err := p.DialUDPAddrPort(netip.AddrPort{}, echoes)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if answer := ask(t, c, []byte("hello")); string(answer) != "hello" {
			t.Errorf("the answer is %q", answer)
		}
	})
	t.Run("echo", func(t *testing.T) {
		for _, to := range []netip.Addr{echoes.Addr(), own} {
			c, err := p.DialPingAddr(p.peer.Addr, to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if answer := ask(t, c, []byte("\x80\x00\x00\x00\x00\x00\x00\x01payload")); answer[0] != 129 || string(answer[8:]) != "payload" {
				t.Errorf("%s answers %q", to, answer)
			}
		}
	})
	t.Run("refused TCP", func(t *testing.T) {
		for _, to := range []netip.AddrPort{refused, netip.MustParseAddrPort("[fd00:c0de::c]:22")} {
			c, err := p.DialContextTCPAddrPort(t.Context(), to)
			if err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("dial %s: %v, %v; want a reset", to, c, err)
			}
		}
	})
	t.Run("refused UDP", func(t *testing.T) {
		c, err := p.DialUDPAddrPort(netip.AddrPort{}, refused)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// This stack reports what it has heard at the next write.
		testwait.Until(t, "a refused datagram is answered", func() error {
			_, err := c.Write([]byte("hello"))
			if err == nil {
				return errors.New("the write succeeds")
			}
			if !strings.Contains(err.Error(), "refused") {
				return err
			}
			return nil
		})
	})
	t.Run("seen", func(t *testing.T) {
		s := testwait.For(t, "the phone is seen", w.seen)
		if len(s) != 1 || s[0].Key != p.peer.Key || !s[0].Endpoint.Addr().IsLoopback() || s[0].Handshake.IsZero() {
			t.Errorf("sightings are %+v", s)
		}
	})
}

// TestOthersAreSilent checks that what is no peer's gets no answer, while a peer is served.
func TestOthersAreSilent(t *testing.T) {
	t.Parallel()
	w := start(t)
	good := add(t, w, "fd00:c0de:0:1::1")
	private, public := wireguardtest.NewKey(t)
	unknown := newPhone(t, w, "fd00:c0de:0:1::2", private, public)
	// This one has a key that is known, and takes the address of another.
	private, public = wireguardtest.NewKey(t)
	spoofer := newPhone(t, w, "fd00:c0de:0:1::3", private, public)
	if err := w.Set(wireguard.Peer{Key: public, Addr: netip.MustParseAddr("fd00:c0de:0:1::4")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var dialing sync.WaitGroup
	for _, p := range []*phone{unknown, spoofer} {
		dialing.Go(func() {
			if c, err := p.DialContextTCPAddrPort(ctx, echoes); err == nil {
				c.Close()
				t.Errorf("%s is served", p.peer.Addr)
			} else if !errors.Is(err, context.Canceled) && !strings.Contains(err.Error(), "cancel") {
				t.Errorf("%s gets an answer: %v", p.peer.Addr, err)
			}
		})
	}
	for range 20 {
		exchange(t, good.dial(t, echoes), 1000)
	}
	// The spoofer's own session works, so its packets have arrived.
	testwait.Until(t, "the spoofer has a session", func() error {
		settings, err := spoofer.WireGuard.IpcGet()
		if err == nil && !strings.Contains(settings, "last_handshake_time_sec=1") {
			err = errors.New("no handshake yet")
		}
		return err
	})
	cancel()
	dialing.Wait()
	for _, p := range []*phone{unknown, spoofer} {
		if _, asked := w.sources.Load(p.peer.Addr); asked {
			t.Errorf("the owner was asked about %s", p.peer.Addr)
		}
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	w := start(t)
	lost, kept := add(t, w, "fd00:c0de:0:1::1"), add(t, w, "fd00:c0de:0:1::2")
	c, other := lost.dial(t, echoes), kept.dial(t, echoes)
	exchange(t, c, 1000)
	exchange(t, other, 1000)
	at := map[wireguard.Key]netip.AddrPort{}
	for !at[lost.peer.Key].IsValid() {
		for _, s := range testwait.For(t, "the phones are seen", w.seen) {
			at[s.Key] = s.Endpoint
		}
	}
	w.Remove(lost.peer.Key)
	if _, err := testwait.ReadFull(c, make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("the removed peer's connection ends with %v; want a reset", err)
	}
	exchange(t, other, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := lost.DialContextTCPAddrPort(ctx, echoes)
		done <- err
	}()
	for range 20 {
		exchange(t, kept.dial(t, echoes), 1000)
	}
	cancel()
	if err := testwait.For(t, "the dial is cancelled", done); err == nil {
		t.Error("a removed peer connects")
	}
	// It may come back.
	if err := w.Set(lost.peer); err != nil {
		t.Fatal(err)
	}
	if err := w.Wake(lost.peer.Key, at[lost.peer.Key]); err != nil {
		t.Fatal(err)
	}
	exchange(t, lost.dial(t, echoes), 1000)
}

// TestReplayedHandshake is an attack: copies of the beginning of a handshake, from another address, get no answer, and do
// not lead the peer's packets there.
func TestReplayedHandshake(t *testing.T) {
	t.Parallel()
	key, _ := wireguardtest.NewKey(t)
	w := newWorld(t, key, 0)
	closing := sync.OnceFunc(w.Close)
	t.Cleanup(closing)
	p := add(t, w, "fd00:c0de:0:1::1")
	c := p.dial(t, echoes)
	exchange(t, c, 1000)

	gateway, err := wireguard.PublicKey(w.key)
	if err != nil {
		t.Fatal(err)
	}
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(gateway))
	socket, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	var message []byte
	send := func() {
		t.Helper()
		if _, err := socket.Write(message); err != nil {
			t.Fatal(err)
		}
	}
	begun, answers := 0, 0
	read := func(patience time.Duration) error {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		_, err := socket.Read(make([]byte, 2000))
		if err == nil {
			answers++
		}
		return err
	}
	// The first one counts: it could be the phone's, from another port.
	testwait.Until(t, "a handshake is answered", func() error { // one that comes too soon after another is taken for a flood
		m, err := p.WireGuard.CreateMessageInitiation(p.WireGuard.LookupPeer(device.NoisePublicKey(gateway)))
		if err != nil {
			return err
		}
		if message, err = binary.Append(nil, binary.LittleEndian, m); err != nil {
			return err
		}
		macs.AddMacs(message)
		begun++
		send()
		return read(time.Second)
	})
	exchange(t, c, 1000) // the phone's own packets lead back to it
	before, ok := w.Endpoint(p.peer.Key)
	if !ok || before.String() == socket.LocalAddr().String() {
		t.Fatalf("the phone is at %s, %v", before, ok)
	}
	for range 20 {
		send()
		exchange(t, c, 1000)
	}
	if after, ok := w.Endpoint(p.peer.Key); !ok || after != before {
		t.Errorf("copies lead from %s to %s, %v", before, after, ok)
	}
	closing() // what it was about to send, it has sent
	for err = nil; err == nil; {
		err = read(100 * time.Millisecond)
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) || answers > begun {
		t.Errorf("%d handshakes, and copies of one, are answered %d times, %v", begun, answers, err)
	}
}

func TestRoaming(t *testing.T) {
	t.Parallel()
	w := start(t)
	p := add(t, w, "fd00:c0de:0:1::1")
	c := p.dial(t, echoes)
	exchange(t, c, 1000)
	first := testwait.For(t, "the phone is seen", w.seen)[0]
	if err := p.WireGuard.IpcSet("listen_port=0\n"); err != nil { // another port
		t.Fatal(err)
	}
	exchange(t, c, 1000)
	second := testwait.For(t, "the phone is seen elsewhere", w.seen)[0]
	if second.Endpoint == first.Endpoint || second.Key != first.Key {
		t.Errorf("seen at %s, then at %s", first.Endpoint, second.Endpoint)
	}
}

// TestRestart checks that a gateway which has lost a device's session begins another when it hears the device, long before
// the device would.
func TestRestart(t *testing.T) {
	t.Parallel()
	key, _ := wireguardtest.NewKey(t)
	w := newWorld(t, key, 0)
	p := add(t, w, "fd00:c0de:0:1::1")
	exchange(t, p.dial(t, echoes), 1000)
	seen := testwait.For(t, "the phone is seen", w.seen)[0]
	w.Close()
	w = newWorld(t, key, w.Port())
	t.Cleanup(w.Close)
	if err := w.Set(p.peer); err != nil {
		t.Fatal(err)
	}
	var woken atomic.Bool
	go func() {
		for at := range w.strangers {
			if at == seen.Endpoint {
				woken.Store(w.Wake(p.peer.Key, at) == nil)
				return
			}
		}
	}()
	exchange(t, p.dial(t, echoes), 1000)
	if !woken.Load() {
		t.Error("the phone came back before the gateway woke it")
	}
}

// TestHalfOpen checks that the owner hears of a connection that its device has given up meanwhile.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	w := start(t)
	p := add(t, w, "fd00:c0de:0:1::1")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := p.DialContextTCPAddrPort(ctx, slow)
		done <- err
	}()
	testwait.For(t, "the gateway asks", w.asked)
	cancel()
	if err := testwait.For(t, "the device gives up", done); err == nil {
		t.Fatal("the device is connected")
	}
	close(w.accept)
	if c := testwait.For(t, "the handler is called", w.accepted); c != nil {
		t.Errorf("the handler gets %v of a device that is gone", c)
	}
}

// TestHandshakeFlood checks that the gateway answers a flood of handshakes that cannot succeed with cookies, which cost their
// sender a round trip, and that a device gets in meanwhile.
func TestHandshakeFlood(t *testing.T) {
	t.Parallel()
	w := start(t)
	gateway, err := wireguard.PublicKey(w.key)
	if err != nil {
		t.Fatal(err)
	}
	var macs device.CookieGenerator
	macs.Init(device.NoisePublicKey(gateway))
	socket, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", w.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	flood := func(packets int) {
		packet := make([]byte, device.MessageInitiationSize)
		for range packets {
			rand.Read(packet)
			binary.LittleEndian.PutUint32(packet, device.MessageInitiationType)
			macs.AddMacs(packet)
			_, _ = socket.Write(packet)
		}
	}
	cookie := make(chan error, 1)
	go func() {
		answer := make([]byte, 200)
		n, err := socket.Read(answer)
		if err == nil && (n != device.MessageCookieReplySize || answer[0] != device.MessageCookieReplyType) {
			err = fmt.Errorf("the answer is %x", answer[:n])
		}
		cookie <- err
	}()
	for waiting := true; waiting; {
		flood(1000)
		select {
		case err := <-cookie:
			if err != nil {
				t.Fatal(err)
			}
			waiting = false
		case <-t.Context().Done():
			t.Fatal("no cookie")
		default:
		}
	}
	p := add(t, w, "fd00:c0de:0:1::1")
	exchange(t, p.dial(t, echoes), 1000)
}
