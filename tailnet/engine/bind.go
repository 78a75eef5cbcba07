package engine

import (
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/tailscale/wireguard-go/conn"
	"github.com/tailscale/wireguard-go/device"
	"tailscale.com/net/packet"
	"tailscale.com/tailcfg"
	"tailscale.com/types/ipproto"
	"tailscale.com/types/key"
)

// probeGap is the minimum time between probes that ask magicsock whether a relayed peer has a direct path by now.
// magicsock looks for one at its own pace; probeGap bounds how much longer the relay carries what could go directly.
const probeGap = 50 * time.Millisecond

// bind is WireGuard's conn.Bind. It sends through magicsock where a direct path is proven, and through the link of the
// peer's relay otherwise.
//
// magicsock does not report where it would send, but counts what it sent and where, synchronously on the sender's
// goroutine (Conn.SetConnectionCounter). So a route remembers where its last batch went. While that was a relay,
// subsequent batches go to the relay's link, and from time to time a one-byte packet, which WireGuard ignores, goes to
// magicsock to see where it is sent.
type bind struct {
	conn.Bind // magicsock's
	engine    *Engine
	received  chan received
	strangers strangers

	mu   sync.Mutex
	done chan struct{} // closed while the bind is closed
}

// route is how packets to a peer travel.
type route struct {
	peer    key.NodePublic
	session session

	mu       sync.Mutex // held while magicsock sends to the peer
	relayed  int        // the region of the relay that magicsock last used; 0 if it used a direct path or none
	direct   bool       // magicsock last used a direct path
	reported way        // the way last reported to the streams
	probed   time.Time
	// initiation is the latest handshake initiation that WireGuard sent to the peer: see Engine.RepeatHandshake.
	initiation [device.MessageInitiationSize]byte
	// answer is the latest answer to a handshake of the peer's: see Engine.answerAgain.
	answer [device.MessageResponseSize]byte
}

// received is a WireGuard packet from a relay.
type received struct {
	from key.NodePublic
	data []byte // of copyPacket
}

const (
	// shortPacket is the longest WireGuard packet that any path carries, in bytes: the tunnel's MTU rounded up to 16,
	// plus 32 for WireGuard itself, with room to spare.
	shortPacket = 1536
	// maxPacket is the longest WireGuard packet that relays carry here, in bytes. Only packets of streams are longer
	// than shortPacket. Each packet costs its ends and the relay about the same time, however long it is. WireGuard
	// takes none of this length on Windows.
	maxPacket = min(8<<10, device.MaxMessageSize)
)

var (
	shortPackets = sync.Pool{New: func() any { return new([shortPacket]byte) }}
	longPackets  = sync.Pool{New: func() any { return new([maxPacket]byte) }}
)

// copyPacket returns a copy of a packet of at most maxPacket bytes, which freePacket takes back.
func copyPacket(data []byte) []byte {
	if len(data) <= shortPacket {
		buf := shortPackets.Get().(*[shortPacket]byte)
		return buf[:copy(buf[:], data)]
	}
	buf := longPackets.Get().(*[maxPacket]byte)
	return buf[:copy(buf[:], data)]
}

func freePacket(data []byte) {
	if cap(data) == shortPacket {
		shortPackets.Put((*[shortPacket]byte)(data[:shortPacket]))
		return
	}
	longPackets.Put((*[maxPacket]byte)(data[:maxPacket]))
}

func newBind(e *Engine) *bind {
	closed := make(chan struct{})
	close(closed)
	return &bind{Bind: e.magic.Bind(), engine: e, received: make(chan received, 256), done: closed}
}

func (b *bind) Open(port uint16) ([]conn.ReceiveFunc, uint16, error) {
	fns, port, err := b.Bind.Open(port)
	if err != nil {
		return nil, 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	done := make(chan struct{})
	b.done = done
	receive := func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		return b.receive(done, bufs, sizes, eps)
	}
	fns = append(fns, receive)
	for i, fn := range fns {
		fns[i] = b.bounded(fn, done)
	}
	return fns, port, nil
}

func (b *bind) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	return b.Bind.Close()
}

// bounded wraps fn so that it receives only while WireGuard has room.
func (b *bind) bounded(fn conn.ReceiveFunc, done <-chan struct{}) conn.ReceiveFunc {
	return func(bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
		b.engine.tun.coming.wait(done)
		n, err := fn(bufs, sizes, eps)
		b.engine.tun.coming.enter(n)
		return n, err
	}
}

// arrived accepts a WireGuard packet from a relay. It blocks while WireGuard is busy, until stop is closed.
func (b *bind) arrived(from key.NodePublic, data []byte, stop <-chan struct{}) {
	if len(data) > maxPacket {
		return
	}
	p := received{from, copyPacket(data)}
	if b.engine.peers.byKey(rawOf(from)) == nil {
		if !b.strangers.keep(p) {
			freePacket(p.data)
			return
		}
		if b.engine.peers.byKey(rawOf(from)) == nil {
			return
		}
		var ok bool
		if p, ok = b.strangers.take(from); !ok { // introduced has taken it
			return
		}
	}
	select {
	case b.received <- p:
	case <-stop:
		freePacket(p.data)
	}
}

// introduced passes WireGuard the handshake that arrived from a peer before the peer was introduced. It does not block:
// a handshake that finds the queue full is lost, as any packet would be.
func (b *bind) introduced(k key.NodePublic) {
	p, ok := b.strangers.take(k)
	if !ok {
		return
	}
	select {
	case b.received <- p:
	default:
		freePacket(p.data)
	}
}

// receive passes WireGuard the packets that came from relays: it waits for one and takes as many more as are queued.
func (b *bind) receive(done <-chan struct{}, bufs [][]byte, sizes []int, eps []conn.Endpoint) (int, error) {
	var p received
	count := 0
	for count < len(bufs) {
		if count == 0 {
			select {
			case p = <-b.received:
			case <-done:
				return 0, net.ErrClosed
			}
		} else {
			select {
			case p = <-b.received:
			default:
				return count, nil
			}
		}
		if ep := b.endpoint(p.from); ep != nil {
			sizes[count], eps[count] = copy(bufs[count], p.data), ep
			count++
		}
		freePacket(p.data)
	}
	return count, nil
}

// endpoint returns magicsock's endpoint for a peer, or nil for strangers.
func (b *bind) endpoint(k key.NodePublic) conn.Endpoint {
	raw := rawOf(k)
	ep, err := b.Bind.ParseEndpoint(hex.EncodeToString(raw[:]))
	if err != nil {
		return nil
	}
	return ep
}

// Send is called by one goroutine per peer, and by others for handshakes.
func (b *bind) Send(bufs [][]byte, ep conn.Endpoint, offset int) error {
	b.engine.tun.going.leave(len(bufs))
	r := b.engine.peers.byAddr(ep.DstIP())
	if r == nil {
		return b.Bind.Send(bufs, ep, offset)
	}
	if len(bufs[0]) == offset {
		return b.answerAgain(r, ep)
	}
	b.engine.sentTo(r, bufs[0][offset:])
	return b.sendBy(r, bufs, ep, offset)
}

// sendBy sends packets to the peer of r.
func (b *bind) sendBy(r *row, bufs [][]byte, ep conn.Endpoint, offset int) error {
	route := r.route
	route.mu.Lock()
	defer route.mu.Unlock()
	defer b.report(route, r.Addr)
	switch first := bufs[0][offset:]; {
	case len(first) == device.MessageInitiationSize && first[0] == device.MessageInitiationType:
		copy(route.initiation[:], first)
	case len(first) == device.MessageResponseSize && first[0] == device.MessageResponseType:
		copy(route.answer[:], first)
	}
	if route.relayed == 0 {
		route.direct = false
		return b.sendDirect(bufs, ep, offset)
	}
	if now := time.Now(); now.Sub(route.probed) >= probeGap {
		route.probed = now
		relayed := route.relayed
		route.relayed, route.direct = 0, false
		if err := b.Bind.Send([][]byte{probePacket()}, ep, packet.GeneveFixedHeaderLength); err != nil &&
			route.relayed == 0 && !route.direct {
			route.relayed = relayed
			return err
		}
		if route.relayed == 0 {
			return b.sendDirect(bufs, ep, offset)
		}
	}
	link := b.engine.link(route.relayed)
	if link == nil {
		return errNoRelay
	}
	for _, buf := range bufs {
		link.send(route.peer, buf[offset:])
	}
	return nil
}

// sendDirect sends packets through magicsock. It drops those that were made while a relay carried them: their streams
// send what was in them again.
func (b *bind) sendDirect(bufs [][]byte, ep conn.Endpoint, offset int) error {
	long := func(buf []byte) bool { return len(buf)-offset > shortPacket }
	if slices.ContainsFunc(bufs, long) {
		if bufs = slices.DeleteFunc(slices.Clone(bufs), long); len(bufs) == 0 {
			return nil
		}
	}
	return b.Bind.Send(bufs, ep, offset)
}

// repeat sends the latest handshake initiation to a peer again.
func (b *bind) repeat(r *row) {
	buf := make([]byte, packet.GeneveFixedHeaderLength+device.MessageInitiationSize)
	r.route.mu.Lock()
	n := copy(buf[packet.GeneveFixedHeaderLength:], r.route.initiation[:])
	r.route.mu.Unlock()
	if ep := b.endpoint(keyOf(r.Key)); ep != nil &&
		buf[packet.GeneveFixedHeaderLength] == device.MessageInitiationType {
		if err := b.sendBy(r, [][]byte{
			buf[:packet.GeneveFixedHeaderLength+n],
		}, ep, packet.GeneveFixedHeaderLength); err != nil {
			b.engine.logf("cannot repeat handshake with %s: %v", r.Name, err)
		}
	}
}

// answerAgain sends the latest answer to a handshake of the peer's once more, unless the peer has shown that it has it.
func (b *bind) answerAgain(r *row, ep conn.Endpoint) error {
	if !r.route.session.unconfirmed() {
		return nil
	}
	buf := make([]byte, packet.GeneveFixedHeaderLength+device.MessageResponseSize)
	r.route.mu.Lock()
	copy(buf[packet.GeneveFixedHeaderLength:], r.route.answer[:])
	r.route.mu.Unlock()
	if buf[packet.GeneveFixedHeaderLength] != device.MessageResponseType {
		return nil
	}
	return b.sendBy(r, [][]byte{buf}, ep, packet.GeneveFixedHeaderLength)
}

// way is how packets to a peer travel.
type way int

const (
	wayUnknown way = iota
	wayDirect
	wayRelayed
)

// report tells the streams to adapt when the way to the peer has changed.
func (b *bind) report(r *route, peer netip.Addr) {
	way := wayUnknown
	switch {
	case r.relayed != 0:
		way = wayRelayed
	case r.direct:
		way = wayDirect
	}
	if way != wayUnknown && way != r.reported {
		r.reported = way
		b.engine.mux.Moved(peer, way == wayRelayed)
	}
}

// probePacket returns one byte, preceded by the headroom that magicsock needs before each packet.
func probePacket() []byte { return make([]byte, packet.GeneveFixedHeaderLength+1) }

var errNoRelay = errors.New("peer's relay is unknown")

// sent is called by magicsock during each Send: see bind. For a relay, dst is DERP's magic address and the region.
func (b *bind) sent(_ ipproto.Proto, src, dst netip.AddrPort, _, _ int, recv bool) {
	if recv {
		return
	}
	r := b.engine.peers.byAddr(src.Addr())
	if r == nil {
		return
	}
	// The Send that led to this call holds route.mu.
	if dst.Addr() == tailcfg.DerpMagicIPAddr {
		r.route.relayed = int(dst.Port())
	} else {
		r.route.direct = true
	}
}
