package wireguard

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"

	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
)

const (
	// askAgain is how long a stranger's address is not asked about again.
	askAgain = 5 * time.Second // WireGuard's REKEY_TIMEOUT: the soonest that another handshake may begin
	// maxAsked bounds the addresses that are remembered as asked about, and so the questions in askAgain.
	maxAsked = 256
	// longest is the size of the longest message that leaves. Longer ones are marks.
	longest = ipstack.MTU + device.MessageTransportSize
)

// bind is WireGuard's standard socket, which also notes who is heard, and when a mark has come.
type bind struct {
	conn.Bind
	stranger func(netip.AddrPort) // does not block
	heard    atomic.Uint64        // batches so far

	mu    sync.Mutex             // guards the fields below
	known map[netip.AddrPort]int // packets of sessions that came from the addresses with sessions, since the last look
	asked map[netip.AddrPort]time.Time
	marks chan struct{} // has room for each mark that is expected
}

func newBind(stranger func(netip.AddrPort)) *bind {
	return &bind{Bind: conn.NewStdNetBind(), stranger: stranger, asked: map[netip.AddrPort]time.Time{}}
}

func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	receive, actual, err := b.Bind.Open(port)
	for i, next := range receive {
		receive[i] = func(packets [][]byte, sizes []int, from []conn.Endpoint) (int, error) {
			n, err := next(packets, sizes, from)
			b.note(packets, sizes[:n], from)
			return n, err
		}
	}
	return receive, actual, err
}

// mark returns a packet to a peer that goes no further than Send: the packets that were on their way to the peer have
// left then.
func mark(from, to netip.Addr) []byte {
	const ipHeader, nothingFollows = 40, 59
	packet := make([]byte, ipstack.MTU+1)
	packet[0], packet[6] = 6<<4, nothingFollows
	binary.BigEndian.PutUint16(packet[4:], uint16(len(packet)-ipHeader))
	copy(packet[8:], from.AsSlice())
	copy(packet[24:], to.AsSlice())
	return packet
}

// expect returns a channel that gets a value for each of the next n marks.
func (b *bind) expect(n int) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.marks = make(chan struct{}, n)
	return b.marks
}

// Send sends messages, except marks.
func (b *bind) Send(messages [][]byte, to conn.Endpoint) error {
	isMark := func(message []byte) bool { return len(message) > longest }
	if !slices.ContainsFunc(messages, isMark) {
		return b.Bind.Send(messages, to)
	}
	var err error
	rest := slices.DeleteFunc(slices.Clone(messages), isMark)
	if len(rest) > 0 {
		err = b.Bind.Send(rest, to)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for range len(messages) - len(rest) {
		select {
		case b.marks <- struct{}{}:
		default: // nothing waits for it any more
		}
	}
	return err
}

// note looks at the packets of a batch.
func (b *bind) note(packets [][]byte, sizes []int, from []conn.Endpoint) {
	b.heard.Add(1)
	for i, size := range sizes {
		if size < device.MessageTransportSize || binary.LittleEndian.Uint32(packets[i]) != device.MessageTransportType {
			continue
		}
		if at, ok := from[i].(*conn.StdNetEndpoint); ok && b.ask(at.AddrPort) {
			b.stranger(netip.AddrPortFrom(at.Addr().Unmap(), at.Port()))
		}
	}
}

// ask reports whether an address has no session, and may be asked about. It counts a packet of an address with one.
func (b *bind) ask(at netip.AddrPort) bool {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, ok := b.known[at]; ok {
		b.known[at] = n + 1
		return false
	}
	now := time.Now()
	if now.Sub(b.asked[at]) < askAgain {
		return false
	}
	if len(b.asked) >= maxAsked {
		for other, when := range b.asked {
			if now.Sub(when) >= askAgain {
				delete(b.asked, other)
			}
		}
		if len(b.asked) >= maxAsked {
			return false
		}
	}
	b.asked[at] = now
	return true
}

// setKnown says which addresses have sessions, and returns how many packets of sessions have come from those that had.
func (b *bind) setKnown(known []netip.AddrPort) (counted map[netip.AddrPort]int) {
	next := make(map[netip.AddrPort]int, len(known))
	for _, at := range known {
		next[at] = 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	counted, b.known = b.known, next
	return counted
}

// forget says that an address has no session.
func (b *bind) forget(at netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.known, at)
}
