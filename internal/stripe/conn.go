package stripe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

// Bounds of the protocol.
const (
	// MaxChunk is the longest chunk, in bytes.
	MaxChunk = 32 << 10
	// Window is how far ahead of the reader chunks are taken, in bytes.
	Window = 16 << 20
	// MaxStripes is how many connections a stream may have.
	MaxStripes = 32

	version    = 1
	nameSize   = 16
	preamble   = 2 + nameSize
	headerSize = 12
	// writeBuffer is how many bytes wait for a connection with room; Write blocks above it.
	writeBuffer = 512 << 10
	// flushTimeout is how long a closed stream may still write what it had accepted.
	flushTimeout = 5 * time.Second
)

var errProtocol = errors.New("the other end breaks the stripe protocol")

// chunk is a piece of the stream on its way out, with room for its header.
type chunk struct {
	offset uint64
	n      int // bytes after the header
	buf    [headerSize + MaxChunk]byte

	// Guarded by Conn.mu.
	by      *outlet   // which connection took it last,
	at      time.Time // and when
	took    uint32    // all that have, by outlet.bit
	writers int       // how many are writing it
	kept    bool      // in Conn.kept
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// Conn is one end of a stream: a net.Conn with CloseWrite. Its addresses are those of its first connection.
type Conn struct {
	addrs net.Conn // the first connection
	name  [nameSize]byte
	done  chan struct{} // closed when the stream is over
	wg    sync.WaitGroup

	mu      sync.Mutex // guards everything below
	stripes []*outlet  // that carry the stream, or did
	joining []*outlet  // opened here, and not confirmed by the other end yet
	err     error      // why the stream is over
	closing bool       // Close was called

	// The sending side.
	maxQueued int // how many chunks may wait in queue
	queue     []*chunk
	filling   *chunk // the last of queue while it is not full and nobody took it
	next      uint64 // offset of the next byte to be written
	sending   int    // chunks that are being written
	ended     bool   // CloseWrite was called
	resend
	room sync.Cond
	wdl  deadline

	// The receiving side.
	head    *piece            // what is being read
	arrived map[uint64]*piece // by offset
	held    int               // bytes of arrived
	taken   uint64            // offset of the next byte to be read
	reading int               // connections that may still bring something,
	waiting int               // and those of them whose next chunk has to wait
	grace   *time.Timer       // see lost
	high    uint64            // the end of what was admitted
	end     uint64            // where the stream ends, if known
	endSeen bool
	report
	data  sync.Cond // the next chunk arrived, or the end
	moved sync.Cond // taken has grown
	rdl   deadline
}

func newConn(raw net.Conn) *Conn {
	c := &Conn{addrs: raw, done: make(chan struct{}), arrived: make(map[uint64]*piece), maxQueued: writeBuffer / MaxChunk}
	for _, cond := range []*sync.Cond{&c.room, &c.data, &c.moved} {
		cond.L = &c.mu
	}
	c.rdl.wake, c.wdl.wake = &c.data, &c.room
	return c
}

// How a connection comes to its stream.
type entry int

const (
	first    entry = iota // begins it
	opened                // joins it, from this end: it counts when the other end confirms it
	accepted              // joins it, from the other end
)

// add gives a connection to the stream. It closes raw and returns false if the stream is over or has enough of them. hello is what is
// sent first.
func (c *Conn) add(raw net.Conn, how entry, hello []byte) (*outlet, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closing || len(c.stripes)+len(c.joining) >= MaxStripes {
		raw.Close()
		return nil, false
	}
	out := &outlet{Conn: raw, how: how, settled: make(chan struct{}), wake: sync.Cond{L: &c.mu}}
	if how != first && !c.reporting {
		c.reporting, c.due = true, true // what came before was not reported
	}
	if how == opened {
		c.joining = append(c.joining, out)
	} else {
		c.count(out)
	}
	if how == accepted {
		hello = c.reportNow() // confirms it
	}
	c.reading++
	c.wg.Go(func() { c.send(out, hello) })
	c.wg.Go(func() { c.receive(out) })
	return out, true
}

// count makes a connection carry the stream. From the second on, this end relies on the other's reports. c.mu must be held.
func (c *Conn) count(out *outlet) {
	if len(c.stripes) == 1 && len(c.queue) > 0 {
		c.acked = c.queue[0].offset // what was sent before arrives in order, and is not reported
	} else if len(c.stripes) == 1 {
		c.acked = c.next
	}
	out.bit, out.counted = 1<<len(c.stripes), true
	close(out.settled)
	c.stripes = append(c.stripes, out)
}

// heard notes that the other end has taken a connection in: it has sent something on it.
func (c *Conn) heard(out *outlet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	out.heard = true
	if !out.counted && c.err == nil {
		c.joining = slices.DeleteFunc(c.joining, func(o *outlet) bool { return o == out })
		c.count(out)
		out.wake.Signal()
	}
}

// drop lets go of a joined connection that the other end has not taken in, as far as is known. It returns false for others: without
// them the stream cannot go on.
func (c *Conn) drop(out *outlet) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.how == first || out.heard {
		return false
	}
	if !out.dropped && !out.counted && c.err == nil {
		close(out.settled)
	}
	out.dropped = true
	c.joining = slices.DeleteFunc(c.joining, func(o *outlet) bool { return o == out })
	out.Close()
	c.wakeSenders() // what it carried is late soon, and others send it
	out.wake.Signal()
	return true
}

// Stripes is how many connections carry the stream.
func (c *Conn) Stripes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.stripes)
}

// fail ends the stream. The first reason counts.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *Conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	for _, timer := range []*time.Timer{c.grace, c.lookout, c.tell} {
		if timer != nil {
			timer.Stop()
		}
	}
	close(c.done)
	for _, out := range c.joining {
		close(out.settled)
	}
	for _, out := range slices.Concat(c.stripes, c.joining) {
		out.Close()
		out.wake.Signal()
	}
	c.wakeAll()
}

func (c *Conn) wakeAll() {
	c.wakeSenders()
	for _, cond := range []*sync.Cond{&c.room, &c.data, &c.moved} {
		cond.Broadcast()
	}
}

// wakeSenders lets all connections look for work.
func (c *Conn) wakeSenders() {
	for _, o := range c.stripes {
		o.idle = false
		o.wake.Signal()
	}
}

// poke lets the idle connection look for work that carries least.
func (c *Conn) poke() {
	var least *outlet
	for _, o := range c.stripes {
		if o.idle && !o.dropped && (least == nil || o.carries < least.carries) {
			least = o
		}
	}
	if least != nil {
		least.idle = false
		least.wake.Signal()
	}
}

// SetWriteBuffer says how many bytes Write may accept before they can be sent, 512 KiB unless it is called.
func (c *Conn) SetWriteBuffer(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.maxQueued = max(1, bytes/MaxChunk)
	c.room.Broadcast()
}

// Write accepts b and blocks only while too much waits for the connections.
func (c *Conn) Write(b []byte) (written int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := c.writable(); err != nil {
			return written, err
		}
		if len(b) == 0 {
			return written, nil
		}
		if c.filling == nil {
			if len(c.queue) >= c.maxQueued {
				c.room.Wait()
				continue
			}
			c.filling = c.newChunk()
			c.poke()
		}
		n := copy(c.filling.buf[headerSize+c.filling.n:], b)
		c.filling.n += n
		c.next += uint64(n)
		written += n
		b = b[n:]
		if c.filling.n == MaxChunk {
			c.filling = nil
		}
	}
}

// writable is why nothing can be written. c.mu must be held.
func (c *Conn) writable() error {
	switch {
	case c.closing:
		return net.ErrClosed
	case c.err != nil:
		return c.err
	case c.ended:
		return io.ErrClosedPipe
	case c.wdl.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// CloseWrite ends the sending side: the other end reads io.EOF after what was written.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.writable(); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	c.endLocked()
	return nil
}

func (c *Conn) endLocked() {
	if c.ended {
		return
	}
	c.ended, c.filling = true, nil
	c.newChunk()
	c.poke()
}

// newChunk queues an empty chunk for what comes next.
func (c *Conn) newChunk() *chunk {
	ck := chunks.Get().(*chunk)
	ck.offset, ck.n, ck.took, ck.kept = c.next, 0, 0, false
	c.queue = append(c.queue, ck)
	return ck
}

// take waits for something that a connection is to send: what arrived here, before what the other end is late to have, before what is new.
// ck is nil for the first; frame is nil when there will be nothing more.
func (c *Conn) take(o *outlet) (frame []byte, ck *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && !o.dropped {
		if frame = c.reportLocked(); frame != nil {
			return frame, nil
		}
		if ck = c.lateLocked(o); ck == nil && c.mayTake() && c.mayCarry(o) {
			ck = c.takeLocked(o)
		}
		if ck != nil {
			if c.mayTake() {
				c.poke() // whoever woke this one may have had work for more
			}
			return ck.frame(), ck
		}
		o.idle = true
		for o.idle && c.err == nil && !o.dropped {
			o.wake.Wait()
		}
	}
	return nil, nil
}

// mayTake reports whether something new is to be sent now.
func (c *Conn) mayTake() bool {
	return len(c.queue) > 0 && (len(c.stripes) == 1 || c.queue[0].offset < c.acked+Window && len(c.kept) < c.allowed())
}

// takeLocked hands the next new chunk to a connection.
func (c *Conn) takeLocked(o *outlet) *chunk {
	ck := c.queue[0]
	c.queue = c.queue[1:]
	if ck == c.filling {
		c.filling = nil
	}
	ck.seal()
	c.hand(ck, o)
	c.keep(ck)
	c.room.Broadcast()
	return ck
}

// hand lets a connection write a chunk.
func (c *Conn) hand(ck *chunk, o *outlet) {
	ck.by, ck.at = o, time.Now()
	ck.took |= o.bit
	ck.writers++
	c.sending++
}

// written counts a chunk that a connection has written.
func (c *Conn) written(ck *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ck.writers--
	c.release(ck)
	if c.sending--; c.sending == 0 && len(c.queue) == 0 {
		c.room.Broadcast()
	}
}

// release gives a chunk back that nobody needs.
func (c *Conn) release(ck *chunk) {
	if ck.writers == 0 && !ck.kept {
		ck.by = nil
		chunks.Put(ck)
	}
}

// send writes to one connection what take has for it. The first chunk goes with head in one packet, on a connection that is known to be
// taken in.
func (c *Conn) send(o *outlet, head []byte) {
	if len(head) > 0 {
		c.mu.Lock()
		var ck *chunk
		if c.err == nil && o.counted && c.mayTake() {
			ck = c.takeLocked(o)
		}
		c.mu.Unlock()
		if ck != nil {
			head = append(head, ck.frame()...)
		}
		_, err := o.Write(head)
		if ck != nil {
			c.written(ck)
		}
		if err != nil {
			c.broken(o, err)
			return
		}
	}
	if o.how == opened && !c.confirmed(o) {
		return
	}
	for {
		frame, ck := c.take(o)
		if frame == nil {
			return
		}
		_, err := o.Write(frame)
		if ck != nil {
			c.written(ck)
		} else if err != nil {
			return // the other end is done: it needs no report
		}
		if err != nil {
			c.broken(o, err)
			return
		}
	}
}

// confirmed waits until the other end has taken in a connection that was opened here, and confirms it in turn. It returns false when
// the connection or the stream is over before.
func (c *Conn) confirmed(o *outlet) bool {
	c.mu.Lock()
	for c.err == nil && !o.dropped && !o.counted {
		o.wake.Wait()
	}
	over := c.err != nil || o.dropped
	var report []byte
	if !over {
		report = c.reportNow()
	}
	c.mu.Unlock()
	if over {
		return false
	}
	if _, err := o.Write(report); err != nil {
		c.broken(o, err)
		return false
	}
	return true
}

// broken ends the stream for a connection that cannot be written to, unless the stream can do without it.
func (c *Conn) broken(o *outlet, err error) {
	if !c.drop(o) {
		c.fail(fmt.Errorf("write stripe: %w", err))
	}
}

// seal writes the header of a chunk that gets no more bytes. Several connections may read it from then on.
func (ck *chunk) seal() {
	binary.BigEndian.PutUint64(ck.buf[:], ck.offset)
	binary.BigEndian.PutUint32(ck.buf[8:], uint32(ck.n))
}

// frame is a sealed chunk as it is sent.
func (ck *chunk) frame() []byte { return ck.buf[:headerSize+ck.n] }

// Close accepts no more and returns at once. What was accepted is still written, and again if it is late, for flushTimeout; then
// the connections are closed.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil
	}
	c.closing = true
	if c.err != nil {
		return nil
	}
	c.endLocked()
	c.wakeAll()
	limit := time.AfterFunc(flushTimeout, func() { c.fail(net.ErrClosed) })
	go func() {
		defer limit.Stop()
		c.mu.Lock()
		for c.err == nil && (c.sending > 0 || len(c.queue) > 0 || len(c.kept) > 0 && c.reading > 0) {
			c.room.Wait()
		}
		c.failLocked(net.ErrClosed)
		c.mu.Unlock()
		c.wg.Wait()
	}()
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.addrs.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return c.addrs.RemoteAddr() }

func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}
func (c *Conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(&c.rdl, t) }
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wdl, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return net.ErrClosed
	}
	d.set(t)
	return nil
}
