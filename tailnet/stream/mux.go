package stream

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/notify"
)

// Options configures a Mux.
type Options struct {
	// Admit reports whether a peer may open streams to a port. Packets that open a forbidden port are not answered.
	// Required.
	Admit func(peer netip.Addr, port uint16) bool
	// Accept returns a function that serves a stream that a peer has opened, or nil to refuse it. The Mux runs it in
	// its own goroutine. Required.
	Accept func(peer netip.Addr, port uint16, c *Conn) func()
	// Header writes the header of a packet to a peer at the beginning of buf, which is long enough, and returns its
	// length. Finish is called with the whole packet once its length is known. Required.
	Header func(buf []byte, peer netip.Addr) int
	Finish func(packet []byte)
	// RelayPacket is the length in bytes of the longest packet to try on a path through a relay, which sends bytes and
	// not packets over its connections. 0 means that of other paths.
	RelayPacket int
	// SendBuffer bounds the bytes in flight to a peer, and RecvBuffer those that a stream buffers for its reader. 0
	// means 16 MiB.
	SendBuffer, RecvBuffer int
	// MaxHeld bounds the memory of what all peers have sent and this end has not read yet, in bytes. The peers of a
	// group, such as the agents of one user, may together use as much as is free, and each peer leastWindow in any
	// case. When they use more, the stream that caused it is reset. 0 means 512 MiB.
	MaxHeld int
}

const (
	defaultBuffer = 16 << 20
	defaultHeld   = 512 << 20
	// writeAhead is how many bytes Write accepts before they may be sent.
	writeAhead = 512 << 10
)

// ErrClosed is returned by calls on a closed Mux or for a removed peer.
var ErrClosed = errors.New("the peer is gone")

// Mux is a node's end of all its streams, with the peers that were added. It only keeps time: the caller carries the
// packets. The caller fetches outgoing packets with Fill when Ready receives, and delivers incoming ones with Receive.
// A Mux is safe for concurrent use.
type Mux struct {
	opts  Options
	start time.Time
	ready notify.Wake
	held  atomic.Int64 // see Options.MaxHeld

	mu     sync.Mutex            // guards the fields below; locked after an association's mutex
	turns  []*assoc              // associations with packets to send, in the order of their turns
	peers  map[netip.Addr]*added // by address
	groups map[Group]*group
	closed bool
}

// Group names peers that share a bound of memory. The zero value is a group of the peer alone.
type Group [16]byte

// added is a peer that was added.
type added struct {
	name  Group
	group *group
	assoc *assoc // nil without streams so far
}

// group counts the memory of its peers.
type group struct {
	held  atomic.Int64 // see Options.MaxHeld
	peers int          // guarded by Mux.mu
}

// New returns a new Mux.
func New(opts Options) *Mux {
	if opts.SendBuffer == 0 {
		opts.SendBuffer = defaultBuffer
	}
	if opts.RecvBuffer == 0 {
		opts.RecvBuffer = defaultBuffer
	}
	if opts.MaxHeld == 0 {
		opts.MaxHeld = defaultHeld
	}
	return &Mux{
		opts: opts, start: time.Now(), ready: notify.NewWake(), peers: make(map[netip.Addr]*added),
		groups: make(map[Group]*group),
	}
}

var lastEpoch atomic.Uint32

// nextEpoch returns an epoch higher than all before, in this process and in earlier ones.
func (m *Mux) nextEpoch() uint32 {
	for {
		last := lastEpoch.Load()
		next := uint32(time.Now().UnixMilli() / 100)
		if last != 0 && int32(next-last) <= 0 {
			next = last + 1
		}
		if next == 0 {
			next = 1
		}
		if lastEpoch.CompareAndSwap(last, next) {
			return next
		}
	}
}

// Add allows streams with a peer of a group. Adding a peer again has no effect: its group does not change.
func (m *Mux) Add(peer netip.Addr, name Group) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.peers[peer] != nil || m.closed {
		return
	}
	g := m.groups[name]
	if g == nil {
		g = new(group)
		if name != (Group{}) {
			m.groups[name] = g
		}
	}
	g.peers++
	m.peers[peer] = &added{name: name, group: g}
}

// assoc returns the association with a peer, and creates it if it does not exist. It returns nil if the peer was not
// added or was removed, or if the Mux is closed.
func (m *Mux) assoc(peer netip.Addr) *assoc {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[peer]
	if p == nil {
		return nil
	}
	if p.assoc == nil {
		p.assoc = newAssoc(m, peer, p.group)
	}
	return p.assoc
}

// Dial opens a stream to a port of an added peer. It does not wait: written data travels with the request. See
// Conn.Wait.
func (m *Mux) Dial(peer netip.Addr, port uint16) (*Conn, error) {
	a := m.assoc(peer)
	if a == nil {
		return nil, ErrClosed
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	c := a.newConn(streamID{number: a.opened, ours: true}, port)
	a.opened++
	c.announce = true
	c.grant()
	c.schedule()
	a.kick(a.now())
	return c, nil
}

// Remove ends all streams with a peer and forgets it. Its packets in flight are dropped.
func (m *Mux) Remove(peer netip.Addr) {
	m.mu.Lock()
	p := m.peers[peer]
	delete(m.peers, peer)
	m.mu.Unlock()
	if p == nil {
		return
	}
	if p.assoc != nil {
		p.assoc.end(ErrClosed)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	// A group whose memory is still being read stays for the peers of that name that come next.
	if p.group.peers--; p.group.peers == 0 && p.group.held.Load() == 0 && m.groups[p.name] == p.group {
		delete(m.groups, p.name)
	}
}

// Close ends all streams.
func (m *Mux) Close() {
	m.mu.Lock()
	m.closed = true
	peers := m.peers
	m.peers, m.groups = nil, nil
	m.mu.Unlock()
	for _, p := range peers {
		if p.assoc != nil {
			p.assoc.end(ErrClosed)
		}
	}
}

// Moved reports that packets to a peer take another path from now on. The estimates of the old path are discarded.
func (m *Mux) Moved(peer netip.Addr, relayed bool) {
	if a := m.assoc(peer); a != nil {
		a.moved(relayed)
	}
}

// Retry sends a packet to each peer with open streams that has been silent, because a path may be back. The peer
// resends what was lost as soon as it arrives.
func (m *Mux) Retry() {
	m.mu.Lock()
	var open []*assoc
	for _, p := range m.peers {
		if p.assoc != nil {
			open = append(open, p.assoc)
		}
	}
	m.mu.Unlock()
	for _, a := range open {
		a.retry()
	}
}

// Ready returns a channel that receives when Fill has packets.
func (m *Mux) Ready() <-chan struct{} { return m.ready }

func (m *Mux) enqueue(a *assoc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a.queued {
		return
	}
	a.queued = true
	m.turns = append(m.turns, a)
	m.ready.Poke()
}

func (m *Mux) dequeue() *assoc {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.turns) == 0 {
		return nil
	}
	a := m.turns[0]
	m.turns = m.turns[1:]
	a.queued = false
	return a
}

// Fill writes packets into bufs, each starting at offset, and their lengths into sizes. It returns the number of
// packets and does not block. If it fills all buffers, Ready receives again. Peers take turns.
func (m *Mux) Fill(bufs [][]byte, sizes []int, offset int) int {
	count := 0
	for count < len(bufs) {
		a := m.dequeue()
		if a == nil {
			return count
		}
		count += a.fill(bufs[count:], sizes[count:], offset)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.turns) > 0 {
		m.ready.Poke()
	}
	return count
}

func (m *Mux) header(buf []byte, peer netip.Addr) []byte { return buf[:m.opts.Header(buf, peer)] }

func (m *Mux) finish(buf, packet []byte) int {
	m.opts.Finish(buf[:len(packet)])
	return len(packet)
}

// parsed is a packet whose frames were checked to be well-formed.
type parsed struct {
	header
	frames []byte
}

// parseAll parses packets from the peer. It drops packets that are malformed or open a port that the peer must not
// reach.
func (m *Mux) parseAll(peer netip.Addr, packets [][]byte) []parsed {
	good := make([]parsed, 0, 16)
next:
	for _, p := range packets {
		h, frames, err := parseHeader(p)
		if err != nil {
			continue
		}
		var f frame
		for rest := frames; len(rest) > 0; {
			if rest, err = f.parse(rest); err != nil || f.kind == kindData && f.opens && !m.opts.Admit(peer, f.port) {
				continue next
			}
		}
		good = append(good, parsed{h, frames})
	}
	return good
}

// Receive processes packets from a peer, without their headers. It does not retain them.
func (m *Mux) Receive(peer netip.Addr, packets [][]byte) {
	good := m.parseAll(peer, packets)
	if len(good) == 0 {
		return
	}
	a := m.assoc(peer)
	if a == nil {
		return
	}
	for _, c := range a.receive(good) {
		if serve := m.opts.Accept(peer, c.port, c); serve != nil {
			c.accept()
			go serve()
		} else {
			c.Refuse()
		}
	}
}
