package relay

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	"tailscale.com/derp"
)

const (
	// maxOwed is how many bytes the library may have queued for a node before those who send more to it wait. A hundred
	// full packets fit, a fifth of queueDepth.
	maxOwed = 128 << 10
	// patience is how long a sender waits at most. Packets that the library drops are never written.
	patience = 20 * time.Millisecond
)

// intake reads what one node sends to the relay. The library takes packets as fast as they arrive, and drops the oldest
// when hundreds wait for the same node. The goroutine that writes them to the node's backlog may not get a processor
// for milliseconds, in which a burst overflows the queue although the backlog has room. So intake lets that goroutine
// catch up before it passes on more. It waits for that goroutine alone, never for the network: one slow node would
// delay all that the sender sends to others.
//
// It follows the frames of DERP from the client info on. On a websocket, whose frames differ, it only passes on.
type intake struct {
	from io.Reader
	own  *backlog // of the node that sends

	frames frames
	known  bool // own was added to table; closing it removes it
}

// Read is called by the library's reading goroutine alone.
func (r *intake) Read(b []byte) (int, error) {
	// The library reads on only after it has admitted the node whose client info it has read.
	if r.frames.greeted && !r.known {
		r.known = true
		r.own.table.add(r.frames.node, r.own)
	}
	n, err := r.from.Read(b)
	r.frames.follow(b[:n], func(to nodeID, size int) {
		if l := r.own.table.of(to); l != nil {
			l.owe(size)
		}
	})
	return n, err
}

// nodeID is the public key of a node.
type nodeID [derp.KeyLen]byte

// backlogs are the backlogs of the nodes that are connected, except over websockets.
type backlogs struct {
	mu sync.RWMutex
	by map[nodeID]*backlog
}

// wrap gives a node's connection a backlog, and returns a reader with an intake. early reads what was read from the
// connection already. native is set if DERP follows without frames around it.
func (t *backlogs) wrap(conn net.Conn, early io.Reader, native bool) (*backlog, *bufio.Reader) {
	own := &backlog{Conn: conn, table: t, native: native}
	return own, bufio.NewReaderSize(&intake{from: io.MultiReader(early, conn), own: own}, readSize)
}

func (t *backlogs) of(node nodeID) *backlog {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.by[node]
}

func (t *backlogs) add(node nodeID, l *backlog) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[node], l.node = l, node
}

// remove forgets l, unless it was never added or a newer connection of its node has replaced it.
func (t *backlogs) remove(l *backlog) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[l.node] == l {
		delete(t.by, l.node)
	}
}

// frameHeader is the length of a frame's type and size.
const frameHeader = 1 + 4

// frames follows the frames that a node sends. The zero value expects the client info.
type frames struct {
	head   [frameHeader + derp.KeyLen]byte
	have   int    // bytes of head
	skip   uint32 // bytes until the next frame
	node   nodeID // of the client info
	opaque bool   // this is not DERP

	claimed bool // node is set
	greeted bool // the client info is complete
}

// follow processes what comes next. It calls packet for each packet that begins there, with its receiver and the size
// of its frame.
func (f *frames) follow(b []byte, packet func(to nodeID, size int)) {
	for len(b) > 0 && !f.opaque {
		if f.skip > 0 {
			n := min(f.skip, uint32(len(b)))
			f.skip -= n
			b = b[n:]
			f.greeted = f.claimed && (f.greeted || f.skip == 0)
			continue
		}
		n := copy(f.head[f.have:f.want()], b)
		f.have += n
		b = b[n:]
		if f.have == f.want() {
			f.begin(packet)
		}
	}
}

// want returns how many bytes of a frame's head matter: its receiver or sender too, if it has one.
func (f *frames) want() int {
	if f.have < frameHeader {
		return frameHeader
	}
	switch kind := derp.FrameType(f.head[0]); {
	case f.size() < derp.KeyLen:
	case kind == derp.FrameSendPacket, kind == derp.FrameClientInfo && !f.claimed:
		return len(f.head)
	}
	return frameHeader
}

func (f *frames) size() uint32 { return binary.BigEndian.Uint32(f.head[1:]) }

// begin processes the head of a frame.
func (f *frames) begin(packet func(to nodeID, size int)) {
	whole := f.have == len(f.head)
	f.skip = f.size() - uint32(f.have-frameHeader)
	f.have = 0
	node := nodeID(f.head[frameHeader:])
	switch {
	case f.claimed && whole:
		packet(node, frameHeader+int(min(f.size(), derp.MaxPacketSize)))
	case f.claimed:
	case whole && derp.FrameType(f.head[0]) == derp.FrameClientInfo:
		f.node, f.claimed = node, true
	default:
		f.opaque = true
	}
}
