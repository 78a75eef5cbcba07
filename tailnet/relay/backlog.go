package relay

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"sync"
	"time"

	"tailscale.com/derp"

	"github.com/codermesh/codermesh/v2/tailnet/internal/fairqueue"
)

const (
	// maxBacklog is how much may wait for one node, in bytes: what a path of 200 ms carries at 340 Mbit/s.
	maxBacklog = 8 << 20
	// blockSize is how much is written at once, in bytes. Other senders' packets wait until it is written.
	blockSize = 16 << 10
)

// backlog is a node's connection whose writes do not wait for the network. The library writes a packet or two at a
// time, and drops packets when hundreds wait: a burst from one node's fast connection, such as all that waited behind a
// lost packet, would lose most of its packets at the other's slow one. A backlog writes what has gathered at once, and
// uses memory only while something waits. What waits is lost when the connection is closed.
//
// Packets of different senders take turns, and one that sends little does not wait behind those that send much
// (tailnet/internal/fairqueue). When the backlog is full, the one with the most loses its oldest packet. On a
// websocket, whose frames differ, all keeps its order, and a write waits for room.
type backlog struct {
	net.Conn
	table  *backlogs // forgets the backlog when it is closed
	node   nodeID    // its key in table, once it is there; guarded by table
	native bool      // what is written are frames of DERP, from the server's info on

	mu       sync.Mutex
	part     []byte                  // the beginning of a frame
	packets  fairqueue.Queue[nodeID] // whole frames, by sender
	others   [][]byte                // whole frames of other kinds, which go first; on a websocket, everything
	size     int                     // memory of what waits, in bytes
	flushing bool
	moved    time.Time // when something was last written to Conn, or began to wait
	deadline time.Time
	patience time.Duration // from when the deadline was set until then
	room     chan struct{} // closed when something was written to Conn; nil if no write waits for room
	err      error         // of the latest write to Conn
	owed     int           // bytes that senders have passed to the library and Write has not seen; dropped packets included
	paid     chan struct{} // closed when Write has seen enough of them; nil if no sender waits
}

// smallFrame and largeFrame are the sizes of the pieces of memory for frames, in bytes. Longer frames are rare.
const (
	smallFrame = 2 << 10
	largeFrame = 9 << 10
)

var (
	smallFrames = sync.Pool{New: func() any { return new([smallFrame]byte) }}
	largeFrames = sync.Pool{New: func() any { return new([largeFrame]byte) }}
	blocks      = sync.Pool{New: func() any { b := make([]byte, 0, blockSize+largeFrame); return &b }}
)

// newFrame returns memory for a frame of n bytes, without any yet. freeFrame takes it back.
func newFrame(n int) []byte {
	switch {
	case n <= smallFrame:
		return smallFrames.Get().(*[smallFrame]byte)[:0]
	case n <= largeFrame:
		return largeFrames.Get().(*[largeFrame]byte)[:0]
	}
	return make([]byte, 0, n)
}

// memory returns how much memory a frame takes.
func memory(b []byte) int {
	if cap(b) == smallFrame || cap(b) == largeFrame {
		return cap(b)
	}
	return len(b)
}

func freeFrame(b []byte) {
	switch cap(b) {
	case smallFrame:
		smallFrames.Put((*[smallFrame]byte)(b[:smallFrame]))
	case largeFrame:
		largeFrames.Put((*[largeFrame]byte)(b[:largeFrame]))
	}
}

// Write queues b. It returns the error of an earlier write to the network, and fails while the backlog is full if
// nothing was written to the network for as long as the write deadline allows. On a websocket it blocks until then.
func (l *backlog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.native && l.size+largeFrame > maxBacklog && l.patience > 0 && time.Since(l.moved) >= l.patience {
		return 0, os.ErrDeadlineExceeded
	}
	for l.size >= maxBacklog && l.packets.Bytes() == 0 && l.err == nil {
		l.release(&l.paid) // senders do not wait for the network
		if !l.waitLocked(&l.room, l.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
	}
	if l.owed = max(0, l.owed-len(b)); l.owed <= maxOwed/2 {
		l.release(&l.paid)
	}
	if l.err != nil {
		return 0, l.err
	}
	if l.native {
		l.queueFrames(b)
	} else {
		for rest := b; len(rest) > 0; {
			n := min(len(rest), blockSize/4)
			l.queueOther(bytes.Clone(rest[:n]))
			rest = rest[n:]
		}
	}
	if !l.flushing && l.size > 0 {
		l.flushing, l.moved = true, time.Now()
		go l.flush()
	}
	return len(b), nil
}

// queueFrames queues the frames that are complete with b. The caller holds mu.
func (l *backlog) queueFrames(b []byte) {
	for len(b) > 0 {
		want := frameHeader
		if len(l.part) >= frameHeader {
			want += int(binary.BigEndian.Uint32(l.part[1:]))
		}
		if l.part == nil {
			l.part = newFrame(frameHeader)
		}
		if want > cap(l.part) {
			longer := append(newFrame(want), l.part...)
			freeFrame(l.part)
			l.part = longer
		}
		n := min(want-len(l.part), len(b))
		l.part = append(l.part, b[:n]...)
		b = b[n:]
		if len(l.part) < frameHeader || len(l.part) < frameHeader+int(binary.BigEndian.Uint32(l.part[1:])) {
			continue
		}
		whole := l.part
		l.part = nil
		if derp.FrameType(whole[0]) != derp.FrameRecvPacket || len(whole) < frameHeader+derp.KeyLen {
			l.queueOther(whole)
		} else {
			l.packets.Push(nodeID(whole[frameHeader:]), whole)
			l.size += memory(whole)
		}
		l.trim()
	}
}

// trim drops packets until what waits fits. Other frames alone do not exceed the limit: Write waits for room then. The
// caller holds mu.
func (l *backlog) trim() {
	for l.size > maxBacklog {
		oldest := l.packets.Drop()
		if oldest == nil {
			return
		}
		l.size -= memory(oldest)
		freeFrame(oldest)
	}
}

// queueOther queues what keeps its order and is not dropped. The caller holds mu.
func (l *backlog) queueOther(b []byte) {
	l.others = append(l.others, b)
	l.size += memory(b)
}

// next appends to block what is to be written next, and returns how much memory it had. The caller holds mu.
func (l *backlog) next(block []byte) (_ []byte, size int) {
	take := func(b []byte) {
		block = append(block, b...)
		size += memory(b)
		freeFrame(b)
	}
	for len(l.others) > 0 && len(block) < blockSize {
		take(l.others[0])
		if l.others = l.others[1:]; len(l.others) == 0 {
			l.others = nil
		}
	}
	for len(block) < blockSize {
		_, b, ok := l.packets.Pop()
		if !ok {
			break
		}
		take(b)
	}
	return block, size
}

// owe records that a sender is about to pass a frame of n bytes for this node to the library. It blocks while much is
// owed, unless writes wait for room.
func (l *backlog) owe(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed > maxOwed && (l.native || l.size < maxBacklog) && l.err == nil &&
		!l.waitLocked(&l.paid, time.Now().Add(patience)) {
		l.owed = 0 // the library has dropped it
	}
	l.owed += n
}

// waitLocked blocks until event is released, or until a time that is not zero: then it returns false. It releases mu
// meanwhile.
func (l *backlog) waitLocked(event *chan struct{}, until time.Time) bool {
	if *event == nil {
		*event = make(chan struct{})
	}
	released, limit := *event, (<-chan time.Time)(nil)
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		limit = timer.C
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-released:
		return true
	case <-limit:
		return false
	}
}

// release ends all waits for an event. The caller holds mu.
func (l *backlog) release(event *chan struct{}) {
	if *event != nil {
		close(*event)
		*event = nil
	}
}

// Close closes the connection. The library calls it when it has stopped reading from the node, for whatever reason.
func (l *backlog) Close() error {
	l.table.remove(l)
	return l.Conn.Close()
}

// flush writes what waits until nothing does. It ends when the connection is closed.
func (l *backlog) flush() {
	block := blocks.Get().(*[]byte)
	defer blocks.Put(block)
	var size int
	for {
		l.mu.Lock()
		*block, size = l.next((*block)[:0])
		if len(*block) == 0 || l.err != nil {
			l.flushing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		_, err := l.Conn.Write(*block)
		l.mu.Lock()
		l.size -= size
		l.err, l.moved = err, time.Now()
		l.release(&l.room)
		l.mu.Unlock()
	}
}

// SetWriteDeadline limits how long a write may wait for room. What waits may take longer.
func (l *backlog) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deadline, l.patience = t, 0; !t.IsZero() {
		l.patience = time.Until(t)
	}
	return nil
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (l *backlog) SetDeadline(t time.Time) error {
	_ = l.SetWriteDeadline(t) // never fails
	return l.SetReadDeadline(t)
}
