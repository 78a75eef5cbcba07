package engine

import (
	"io"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"tailscale.com/net/packet"

	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestContractLongPackets checks that streams through a relay use packets of the longest kind, which WireGuard and the relay carry whole.
func TestContractLongPackets(t *testing.T) {
	t.Parallel()
	relay := newRelay(t)
	only := func(o *Options) { o.RelayOnly = true }
	a, b := newEngine(t, only), newEngine(t, only)
	admit := b.nic.Admit
	var longest atomic.Int64
	b.nic.Admit = func(packet []byte) bool {
		longest.Store(max(longest.Load(), int64(len(packet)))) // one goroutine calls it
		return admit(packet)
	}
	for _, e := range []*Engine{a, b} {
		e.SetRelays([]Relay{relay}, 1)
		testwait.Until(t, "the relay is connected", connected(e))
	}
	a.Upsert(about(b))
	b.Upsert(about(a))
	c, err := a.DialStream(netip.AddrPortFrom(b.opts.Addr, 7))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	go io.Copy(io.Discard, c)
	for piece := make([]byte, 64<<10); longest.Load() < maxPacket*9/10; {
		if _, err := c.Write(piece); err != nil {
			t.Fatalf("the longest packet has %d bytes, and then: %v", longest.Load(), err)
		}
	}
	if longest.Load() > maxPacket {
		t.Errorf("the longest packet has %d bytes", longest.Load())
	}
}

// recorder is a conn.Bind that records the lengths of what it sends.
type recorder struct {
	conn.Bind
	lengths []int
}

func (r *recorder) Send(bufs [][]byte, _ conn.Endpoint, offset int) error {
	for _, b := range bufs {
		r.lengths = append(r.lengths, len(b)-offset)
	}
	return nil
}

// TestLongPacketsNeedARelay checks that packets that were made for a relay are not sent on a direct path, which would carry them in fragments
// or not at all, and that the others are.
func TestLongPacketsNeedARelay(t *testing.T) {
	t.Parallel()
	sent := new(recorder)
	b := &bind{Bind: sent}
	buf := func(n int) []byte { return make([]byte, packet.GeneveFixedHeaderLength+n) }
	for _, batch := range [][][]byte{{buf(100), buf(maxPacket), buf(shortPacket)}, {buf(shortPacket + 1)}, {buf(200)}} {
		whole := len(batch)
		if err := b.sendDirect(batch, nil, packet.GeneveFixedHeaderLength); err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			if batch[i] == nil {
				t.Error("a buffer of WireGuard's batch is gone")
			}
		}
	}
	if want := []int{100, shortPacket, 200}; !slices.Equal(sent.lengths, want) {
		t.Errorf("sent packets of %v bytes, want %v", sent.lengths, want)
	}
}
