package stream

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/internal/notify"
)

// Options of a Mux.
type Options struct {
	// Admit reports whether a peer may open streams to a port. What one that may not sends is not answered. Required.
	Admit func(peer netip.Addr, port uint16) bool
	// Accept returns who serves a stream that a peer has opened, on a goroutine of its own, or nil: then it is refused. Required.
	Accept func(peer netip.Addr, port uint16, c *Conn) func()
	// Header writes what stands before a packet to a peer at the beginning of buf, which is long enough, and returns its length. Finish is
	// called when the packet's length is known, with all of it. Required.
	Header func(buf []byte, peer netip.Addr) int
	Finish func(packet []byte)
	// SendBuffer and RecvBuffer bound what is on its way to a peer and what a stream keeps for its reader, in bytes. 0 means 16 MiB.
	SendBuffer, RecvBuffer int
}

const (
	defaultBuffer = 16 << 20
	// writeAhead is how many bytes Write takes that may not be sent yet.
	writeAhead = 512 << 10
)

// ErrClosed is what a call on a closed Mux, or for a peer that is removed, ends with.
var ErrClosed = errors.New("the peer is gone")

// Mux is a node's end of all its streams. It does nothing by itself but keep time: whoever carries packets fetches them with Fill, when
// Ready says so, and brings them with Receive. All methods may be called by any goroutine.
type Mux struct {
	opts  Options
	start time.Time
	ready notify.Wake

	mu     sync.Mutex            // guards what follows; taken after an association's
	turns  []*assoc              // those with packets to send, in the order of their turns
	assocs map[netip.Addr]*assoc // by peers that were added; nil for one without streams so far
	epoch  uint32
	closed bool
}

// New makes a Mux.
func New(opts Options) *Mux {
	if opts.SendBuffer == 0 {
		opts.SendBuffer = defaultBuffer
	}
	if opts.RecvBuffer == 0 {
		opts.RecvBuffer = defaultBuffer
	}
	return &Mux{opts: opts, start: time.Now(), ready: notify.NewWake(), assocs: make(map[netip.Addr]*assoc)}
}

var lastEpoch atomic.Uint32

// nextEpoch is higher than all before, in this process and in earlier ones.
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

// Add lets a peer have streams. Adding it again changes nothing.
func (m *Mux) Add(peer netip.Addr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.assocs[peer]; !ok && !m.closed {
		m.assocs[peer] = nil
	}
}

// assoc returns the association with a peer and makes it if it does not exist. It is nil for a peer that was not added or is removed, and
// when the Mux is closed.
func (m *Mux) assoc(peer netip.Addr) *assoc {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.assocs[peer]
	if ok && a == nil {
		a = newAssoc(m, peer)
		m.assocs[peer] = a
	}
	return a
}

// Dial opens a stream to a port of a peer that was added. It does not wait: what is written travels with the request. See Conn.Wait.
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

// Remove ends all streams with a peer and forgets it. Packets of it that are still under way are dropped.
func (m *Mux) Remove(peer netip.Addr) {
	m.mu.Lock()
	a := m.assocs[peer]
	delete(m.assocs, peer)
	m.mu.Unlock()
	if a != nil {
		a.end(ErrClosed)
	}
}

// Close ends all streams.
func (m *Mux) Close() {
	m.mu.Lock()
	m.closed = true
	assocs := m.assocs
	m.assocs = nil
	m.mu.Unlock()
	for _, a := range assocs {
		if a != nil {
			a.end(ErrClosed)
		}
	}
}

// Moved tells how packets to a peer travel from now on. What is known of the path before does not count any more.
func (m *Mux) Moved(peer netip.Addr, relayed bool) {
	if a := m.assoc(peer); a != nil {
		a.moved(relayed)
	}
}

// Ready receives when Fill has packets.
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

// Fill writes packets into bufs, each from offset on, and their lengths into sizes. It returns how many there are, and does not wait for
// any. When it returns as many as there is room for, Ready receives again. Peers take turns.
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

// parsed is a packet whose frames are known to be well-formed.
type parsed struct {
	header
	frames []byte
}

// parseAll reads what the peer sent. What is malformed, or opens a port that the peer must not reach, is left out.
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

// Receive takes in packets that a peer sent, without what stood before them. It does not keep them.
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
