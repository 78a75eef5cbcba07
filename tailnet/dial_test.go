package tailnet_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tailnettest"
)

// received counts the first messages of handshakes, without copies and with them.
type received struct{ handshakes, messages atomic.Int64 }

// mutePeer introduces a peer that receives handshakes and never answers. It returns the peer's address, what it has received, and
// a channel that is closed with the first handshake.
func mutePeer(t *testing.T, n *tailnet.Node) (peer tailnet.Peer, seen *received, first <-chan struct{}) {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	t.Cleanup(func() { conn.Close(); reading.Wait() })
	seen = new(received)
	began := make(chan struct{})
	reading.Go(func() {
		const initiation = 1 // the first byte of WireGuard's first message
		buf, last := make([]byte, 2048), ""
		for {
			size, err := conn.Read(buf)
			if err != nil {
				return
			}
			if size == 0 || buf[0] != initiation {
				continue
			}
			seen.messages.Add(1)
			if text := string(buf[:size]); text != last {
				last = text
				if seen.handshakes.Add(1) == 1 {
					close(began)
				}
			}
		}
	})
	peer = tailnet.Peer{
		NodeInfo: tailnet.NodeInfo{
			ID: uuid.New(), Key: tailnet.NewPrivateKey().Public(),
			Endpoints: []netip.AddrPort{conn.LocalAddr().(*net.UDPAddr).AddrPort()},
		},
		WireGuardOnly: true,
	}
	if err := n.Upsert(peer); err != nil {
		t.Fatal(err)
	}
	return peer, seen, began
}

// TestDialsShareHandshakes checks that dials of one peer wait for the same handshake and share the copies of its first message. When each of
// them restarted it, the restarts voided each other's handshakes, and the peer took the rest for replays and a flood: sixteen concurrent dials
// could wait until their deadlines. When they restarted it although the peer was only slow, a server to which a thousand agents returned did
// most of its work in vain.
func TestDialsShareHandshakes(t *testing.T) {
	t.Parallel()
	n := tailnettest.NewNode(t, tailnettest.NewRelay(t), tailnet.Options{})
	peer, seen, first := mutePeer(t, n)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var dials sync.WaitGroup
	for range 16 {
		dials.Go(func() {
			if _, err := n.Dial(ctx, "tcp", netip.AddrPortFrom(peer.Addr(), 7)); !errors.Is(err, context.Canceled) {
				t.Errorf("dial: %v", err)
			}
		})
	}
	began := time.Now()
	testwait.For(t, "the first handshake", first)
	time.Sleep(2 * time.Second) // in which restarts would come
	cancel()
	dials.Wait()
	took := time.Since(began)
	// WireGuard begins an unanswered handshake again after 5 s.
	if got, most := seen.handshakes.Load(), int64(1+took/(5*time.Second)); got > most {
		t.Errorf("%d handshakes in %s, want at most %d", got, took, most)
	}
	// A message gets at least 0.4 s before it is repeated, so there cannot be more on any machine.
	if got, most := seen.messages.Load(), int64(1+took/(400*time.Millisecond)); got > most {
		t.Errorf("%d first messages of a handshake in %s, want at most %d", got, took, most)
	}
}

func TestDialEndsWithItsPeer(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			n := tailnettest.NewNode(t, tailnettest.NewRelay(t), tailnet.Options{})
			peer, _, first := mutePeer(t, n)
			result := make(chan error, 1)
			go func() {
				_, err := n.Dial(t.Context(), network, netip.AddrPortFrom(peer.Addr(), 7))
				result <- err
			}()
			<-first
			n.Remove(peer.ID)
			if err := <-result; !errors.Is(err, tailnet.ErrUnknownPeer) {
				t.Errorf("the dial ended with %v, want %v", err, tailnet.ErrUnknownPeer)
			}
		})
	}
}
