package stripe

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	readBuffer = 64 << 10
	// largePiece is from which size on a piece gets a pooled buffer of MaxChunk bytes.
	largePiece = MaxChunk / 2
	// maxPieces is how many chunks wait for earlier ones; no more are read above it.
	maxPieces = 16 << 10
)

// piece is a chunk that arrived.
type piece struct {
	rest []byte          // what was not read yet
	buf  *[MaxChunk]byte // that rest lies in; nil if it has its own
}

var pieceBuffers = sync.Pool{New: func() any { return new([MaxChunk]byte) }}

func newPiece(n int) *piece {
	if n < largePiece {
		return &piece{rest: make([]byte, n)}
	}
	buf := pieceBuffers.Get().(*[MaxChunk]byte)
	return &piece{rest: buf[:n], buf: buf}
}

func (p *piece) free() {
	if p.buf != nil {
		pieceBuffers.Put(p.buf)
	}
}

// receive reads chunks from one connection until it ends.
func (c *Conn) receive(out *outlet) {
	in := bufio.NewReaderSize(out, readBuffer)
	for heard := false; ; heard = true {
		err := c.receiveChunk(in)
		if err != nil {
			if c.drop(out) && !errors.Is(err, errProtocol) {
				err = io.EOF // the other end did not take this connection in, or the stream was over before
			}
			c.lost(err)
			return
		}
		if !heard {
			c.heard(out)
		}
	}
}

// receiveChunk takes in one chunk, when it is its turn. At a clean end of the connection it returns io.EOF.
func (c *Conn) receiveChunk(in io.Reader) error {
	offset, n, err := readHeader(in)
	if err != nil {
		return err
	}
	switch {
	case n == 0:
		return c.putEnd(offset)
	case n >= reportMark:
		return c.readReport(in, offset, n-reportMark)
	}
	again, err := c.admit(offset, n)
	if err != nil {
		return err
	}
	if again {
		_, err := io.CopyN(io.Discard, in, int64(n))
		return unexpected(err)
	}
	p := newPiece(n)
	if err := readFull(in, p.rest); err != nil {
		p.free()
		return err
	}
	return c.put(offset, p)
}

// readFull fills b.
func readFull(in io.Reader, b []byte) error {
	_, err := io.ReadFull(in, b)
	return unexpected(err)
}

// unexpected is err where no end may come.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readHeader reads what stands before a chunk's bytes, or a report's offsets.
func readHeader(in io.Reader) (offset uint64, n int, err error) {
	var header [headerSize]byte
	if _, err := io.ReadFull(in, header[:]); err != nil {
		return 0, 0, err
	}
	offset, length := binary.BigEndian.Uint64(header[:]), binary.BigEndian.Uint32(header[8:])
	if length > MaxChunk && length < reportMark || offset > 1<<62 {
		return 0, 0, errProtocol
	}
	return offset, int(length), nil
}

// admit waits until a chunk may be read: the one that is needed next always, others within the window. again tells that it is here
// already.
func (c *Conn) admit(offset uint64, n int) (again bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && offset > c.needed() && (offset+uint64(n) > c.taken+Window || len(c.arrived) >= maxPieces) {
		c.waiting++
		if c.checkStuck(); c.err == nil {
			c.moved.Wait()
		}
		c.waiting--
	}
	switch {
	case c.err != nil:
		return false, c.err
	case c.endSeen && offset+uint64(n) > c.end:
		return false, errProtocol
	}
	c.high = max(c.high, offset+uint64(n))
	if again = c.has(offset); again {
		c.arrivedLocked(offset) // the sender did not know
	}
	return again, nil
}

// checkStuck ends a stream that can never go on: nothing is there to be read, and all connections wait for that. An honest sender
// brings what is needed next before anything that has to wait. c.mu must be held.
func (c *Conn) checkStuck() {
	if c.err == nil && c.waiting == c.reading && c.head == nil && c.arrived[c.taken] == nil {
		c.failLocked(errProtocol)
	}
}

// has reports whether the chunk at an offset has arrived. c.mu must be held.
func (c *Conn) has(offset uint64) bool { return offset < c.needed() || c.arrived[offset] != nil }

// needed is the offset of the first byte that is not in head. c.mu must be held.
func (c *Conn) needed() uint64 {
	if c.head != nil {
		return c.taken + uint64(len(c.head.rest))
	}
	return c.taken
}

// put takes in a chunk that was admitted.
func (c *Conn) put(offset uint64, p *piece) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		p.free()
		return c.err
	case c.has(offset): // by another connection, meanwhile
		p.free()
		c.arrivedLocked(offset)
		return nil
	case c.held+len(p.rest) > Window+MaxChunk:
		p.free()
		return errProtocol
	}
	c.arrivedLocked(offset)
	c.arrived[offset] = p
	c.held += len(p.rest)
	if offset == c.taken {
		c.data.Broadcast()
	}
	return nil
}

// putEnd takes in where the stream ends.
func (c *Conn) putEnd(offset uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.endSeen && offset == c.end:
		return nil
	case c.endSeen || offset < c.high:
		return errProtocol
	}
	c.arrivedLocked(offset)
	c.end, c.endSeen = offset, true
	c.data.Broadcast()
	return nil
}

// lost is called when a connection brings nothing any more.
func (c *Conn) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading--; c.reading == 0 {
		c.room.Broadcast() // nobody will report any more
	} else {
		c.checkStuck()
	}
	if !errors.Is(err, io.EOF) {
		c.failLocked(fmt.Errorf("read stripe: %w", err))
		return
	}
	// The other end closes its connections when it is done, or has gone. What it said before counts, on all of them: also on one
	// that was made just before and still says whose it is.
	if c.reading == 0 && !c.complete() && c.err == nil {
		c.grace = time.AfterFunc(joinGrace, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.reading == 0 && !c.complete() {
				c.failLocked(fmt.Errorf("read stripe: %w", io.ErrUnexpectedEOF))
			}
		})
	}
}

// joinGrace is how long a stream whose connections have all ended too early waits for another one.
const joinGrace = 2 * time.Second

// complete reports whether every byte up to the end is here. c.mu must be held.
func (c *Conn) complete() bool {
	if !c.endSeen {
		return false
	}
	at := c.needed()
	for at < c.end {
		p := c.arrived[at]
		if p == nil {
			return false
		}
		at += uint64(len(p.rest))
	}
	return true
}

// Read blocks until there are bytes, the stream has ended, the deadline has passed or the stream is over.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(b) == 0 {
		return 0, nil
	}
	for {
		if c.closing {
			return 0, net.ErrClosed
		}
		if n := c.readLocked(b); n > 0 {
			return n, nil
		}
		switch {
		case c.endSeen && c.taken == c.end:
			return 0, io.EOF
		case c.err != nil:
			return 0, c.err
		case c.rdl.passed():
			return 0, os.ErrDeadlineExceeded
		}
		c.data.Wait()
	}
}

// readLocked moves what is there to b.
func (c *Conn) readLocked(b []byte) (n int) {
	for n < len(b) {
		if c.head == nil {
			if c.head = c.arrived[c.taken]; c.head == nil {
				break
			}
			delete(c.arrived, c.taken)
			c.held -= len(c.head.rest)
		}
		m := copy(b[n:], c.head.rest)
		n += m
		c.taken += uint64(m)
		if c.head.rest = c.head.rest[m:]; len(c.head.rest) == 0 {
			c.head.free()
			c.head = nil
		}
	}
	if n > 0 {
		c.moved.Broadcast()
		c.consumedLocked()
	}
	return n
}
