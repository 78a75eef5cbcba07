package stream

import (
	"context"
	"io"
	"net"
	"os"
	"syscall"
)

// Wait blocks until the other end accepts the stream or refuses it (syscall.ECONNREFUSED), or ctx ends. The stream can
// be used before that.
func (c *Conn) Wait(ctx context.Context) error {
	select {
	case <-c.settled:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return c.err
}

// Again immediately retransmits unacknowledged data. Use it for a stream whose first packets were lost with the session
// below.
func (c *Conn) Again() {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.err == nil && c.a.sent.base != c.a.sent.next {
		c.a.probe(c.a.now())
		c.a.kick(c.a.now())
	}
}

// Read blocks until bytes are available, the stream has ended, the deadline has passed or the stream has failed.
func (c *Conn) Read(b []byte) (int, error) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for {
		switch n := min(c.readable(), uint64(len(b))); {
		case c.closed:
			return 0, net.ErrClosed
		case c.rdl.passed():
			return 0, os.ErrDeadlineExceeded
		case n > 0:
			c.take(b[:n])
			return int(n), nil
		case c.received():
			return 0, io.EOF
		case c.err != nil:
			return 0, c.err
		case len(b) == 0:
			return 0, nil
		}
		c.arrival.Wait()
	}
}

// take copies readable bytes to b.
func (c *Conn) take(b []byte) {
	c.in.read(c.read, b)
	n := uint64(len(b))
	c.read += n
	if c.got[0].start = c.read; c.got[0].start == c.got[0].end {
		c.got = c.got[1:]
	}
	c.in.drop(c.read, len(c.got) == 0)
	c.count()
	if c.a.streams[c.id] != c {
		return // the stream is over
	}
	c.a.granted -= n
	if had := c.granted - c.read; !c.hasFinal && had < c.a.grant(had)*3/4 {
		c.grant()
		c.a.kick(c.a.now())
	}
}

// Write queues b, and blocks while too much data waits to be sent.
func (c *Conn) Write(b []byte) (written int, err error) {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	for {
		switch {
		case c.closed:
			return written, net.ErrClosed
		case c.err != nil:
			return written, c.err
		case c.halted:
			return written, syscall.EPIPE
		case c.fin:
			return written, io.ErrClosedPipe
		case c.wdl.passed():
			return written, os.ErrDeadlineExceeded
		case len(b) == 0:
			return written, nil
		}
		room := min(writeAhead-int(c.end-c.sentTo), c.a.mux.opts.SendBuffer-int(c.end-c.base))
		if room <= 0 {
			c.waiting++
			c.room.Wait()
			c.waiting--
			continue
		}
		n := min(room, len(b))
		c.out.write(c.end, b[:n])
		c.end += uint64(n)
		written += n
		b = b[n:]
		c.schedule()
		c.a.kick(c.a.now())
	}
}

// CloseWrite ends the sending side: the other end reads io.EOF after the written data.
func (c *Conn) CloseWrite() error {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	switch {
	case c.closed:
		return net.ErrClosed
	case c.err != nil:
		return c.err
	}
	c.endWrites()
	return nil
}

func (c *Conn) endWrites() {
	if !c.fin {
		c.fin = true
		c.schedule()
		c.a.kick(c.a.now())
	}
}

// Close ends both sides and returns immediately. Written data is still sent, and retransmitted if needed.
func (c *Conn) Close() error {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	c.rdl.stop()
	c.wdl.stop()
	c.arrival.Broadcast()
	c.room.Broadcast()
	c.discard()
	if c.err != nil {
		return nil
	}
	if !c.hasFinal {
		c.needStop = true
		c.schedule()
	}
	c.endWrites()
	c.finish()
	c.a.kick(c.a.now())
	return nil
}

// Over reports whether this end has stopped sending anything for the stream.
func (c *Conn) Over() bool {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	return c.err != nil
}
