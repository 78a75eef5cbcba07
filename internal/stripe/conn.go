package stripe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
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
	// maxQueued is how many chunks wait for a connection with room; Write blocks above it.
	maxQueued = 16
	// flushTimeout is how long a closed stream may still write what it had accepted.
	flushTimeout = 5 * time.Second
)

var errProtocol = errors.New("the other end breaks the stripe protocol")

// chunk is a piece of the stream on its way out, with room for its header.
type chunk struct {
	offset uint64
	n      int // bytes after the header
	buf    [headerSize + MaxChunk]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// Conn is one end of a stream: a net.Conn with CloseWrite. Its addresses are those of its first connection.
type Conn struct {
	first net.Conn
	name  [nameSize]byte
	done  chan struct{} // closed when the stream is over
	wg    sync.WaitGroup

	mu      sync.Mutex // guards everything below
	stripes []net.Conn
	err     error // why the stream is over
	closing bool  // Close was called

	// The sending side.
	queue   []*chunk
	filling *chunk // the last of queue while it is not full and nobody took it
	next    uint64 // offset of the next byte to be written
	sending int    // chunks that are being written
	ended   bool   // CloseWrite was called
	work    sync.Cond
	room    sync.Cond
	wdl     deadline

	// The receiving side.
	head    *piece            // what is being read
	arrived map[uint64]*piece // by offset
	held    int               // bytes of arrived
	taken   uint64            // offset of the next byte to be read
	reading int               // connections that may still bring something
	grace   *time.Timer       // see lost
	high    uint64            // the end of what was admitted
	end     uint64            // where the stream ends, if known
	endSeen bool
	data    sync.Cond // the next chunk arrived, or the end
	moved   sync.Cond // taken has grown
	rdl     deadline
}

func newConn(first net.Conn) *Conn {
	c := &Conn{first: first, done: make(chan struct{}), arrived: make(map[uint64]*piece)}
	for _, cond := range []*sync.Cond{&c.work, &c.room, &c.data, &c.moved} {
		cond.L = &c.mu
	}
	c.rdl.wake, c.wdl.wake = &c.data, &c.room
	return c
}

// add makes a connection carry the stream. It closes raw and returns false if the stream is over or has enough of them. head is
// what is to be sent before the first chunk.
func (c *Conn) add(raw net.Conn, head []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closing || len(c.stripes) >= MaxStripes {
		raw.Close()
		return false
	}
	c.stripes = append(c.stripes, raw)
	c.reading++
	c.wg.Go(func() { c.send(raw, head) })
	c.wg.Go(func() { c.receive(raw) })
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
	if c.grace != nil {
		c.grace.Stop()
	}
	close(c.done)
	for _, raw := range c.stripes {
		raw.Close()
	}
	c.wakeAll()
}

func (c *Conn) wakeAll() {
	for _, cond := range []*sync.Cond{&c.work, &c.room, &c.data, &c.moved} {
		cond.Broadcast()
	}
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
			if len(c.queue) >= maxQueued {
				c.room.Wait()
				continue
			}
			ck := chunks.Get().(*chunk)
			ck.offset, ck.n = c.next, 0
			c.queue, c.filling = append(c.queue, ck), ck
			c.work.Signal()
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
	ck := chunks.Get().(*chunk)
	ck.offset, ck.n = c.next, 0
	c.queue = append(c.queue, ck)
	c.work.Signal()
}

// take waits for a chunk to send. It returns nil when there will be none.
func (c *Conn) take() *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) == 0 && c.err == nil {
		c.work.Wait()
	}
	return c.takeLocked()
}

// takeNow is take that does not wait: it returns nil when there is none.
func (c *Conn) takeNow() *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.takeLocked()
}

func (c *Conn) takeLocked() *chunk {
	if c.err != nil || len(c.queue) == 0 {
		return nil
	}
	ck := c.queue[0]
	c.queue = c.queue[1:]
	if ck == c.filling {
		c.filling = nil
	}
	c.sending++
	c.room.Broadcast()
	return ck
}

// sent counts a chunk that was written.
func (c *Conn) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sending--; c.sending == 0 && len(c.queue) == 0 {
		c.room.Broadcast()
	}
}

// send writes chunks to one connection as long as it takes them.
func (c *Conn) send(raw net.Conn, head []byte) {
	if len(head) > 0 {
		ck := c.takeNow()
		if ck != nil { // one packet for both
			head = append(head, ck.frame()...)
			chunks.Put(ck)
		}
		_, err := raw.Write(head)
		if ck != nil {
			c.sent()
		}
		if err != nil {
			c.fail(fmt.Errorf("write stripe: %w", err))
			return
		}
	}
	for {
		ck := c.take()
		if ck == nil {
			return
		}
		_, err := raw.Write(ck.frame())
		chunks.Put(ck)
		c.sent()
		if err != nil {
			c.fail(fmt.Errorf("write stripe: %w", err))
			return
		}
	}
}

// frame is the chunk as it is sent.
func (ck *chunk) frame() []byte {
	binary.BigEndian.PutUint64(ck.buf[:], ck.offset)
	binary.BigEndian.PutUint32(ck.buf[8:], uint32(ck.n))
	return ck.buf[:headerSize+ck.n]
}

// Close accepts no more and returns at once. What was accepted is still written for flushTimeout; then the connections are closed.
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
		for c.err == nil && (c.sending > 0 || len(c.queue) > 0) {
			c.room.Wait()
		}
		c.failLocked(net.ErrClosed)
		c.mu.Unlock()
		c.wg.Wait()
	}()
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.first.LocalAddr() }
func (c *Conn) RemoteAddr() net.Addr { return c.first.RemoteAddr() }

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
