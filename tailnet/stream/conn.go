package stream

import (
	"net"
	"sync"
	"syscall"
)

// Conn is one end of a stream: a net.Conn with CloseWrite. Everything but id, port and a is guarded by a.mu.
type Conn struct {
	a    *assoc
	id   streamID
	port uint16

	err      error // why the stream is over
	closed   bool  // Close has been called
	accepted bool  // the other end has sent something
	settled  chan struct{}

	// Sending. base <= sentTo <= end.
	out                             blocks
	base                            uint64 // everything before it was acknowledged
	sentTo                          uint64
	end                             uint64 // of the written bytes
	limit                           uint64 // the peer accepts bytes up to it
	acked                           ranges // beyond base
	lost                            ranges // to retransmit
	fin, finSent, finAcked          bool
	announce                        bool // the frame that opens the stream must be sent
	needWindow, needStop, needReset bool
	reason                          uint64 // of the reset
	inData, inControl               bool   // in a.data, a.control
	halted                          bool   // the peer no longer reads
	waiting                         int    // calls of Write
	room                            sync.Cond
	wdl                             deadline

	// Receiving.
	in       blocks
	held     int    // the memory of in that was counted
	got      ranges // of bytes, from read on
	read     uint64
	granted  uint64 // the peer may send up to it
	final    uint64 // where the stream ends
	hasFinal bool
	unread   bool // the peer knows that this end no longer reads
	arrival  sync.Cond
	rdl      deadline
}

// newConn adds a stream. a.mu must be held.
func (a *assoc) newConn(id streamID, port uint16) *Conn {
	c := &Conn{a: a, id: id, port: port, settled: make(chan struct{})}
	c.room.L, c.arrival.L = &a.mu, &a.mu
	c.rdl.wake, c.wdl.wake = &c.arrival, &c.room
	if id.ours {
		c.limit = firstWindow
	} else {
		c.granted = firstWindow
		a.granted += firstWindow
		c.accepted = true
		close(c.settled)
	}
	a.streams[id] = c
	return c
}

// schedule queues the stream for what it has to send. a.mu must be held.
func (c *Conn) schedule() {
	if !c.inData && c.hasData() {
		c.inData = true
		c.a.data = append(c.a.data, c)
	}
	// The peer ignores control frames for an unknown stream. Until it has answered, they are accompanied by the frame
	// that opens the stream.
	if !c.inControl && c.accepted && (c.needWindow || c.needStop || c.needReset) {
		c.inControl = true
		c.a.control = append(c.a.control, c)
	}
}

func (c *Conn) hasData() bool {
	if c.err != nil {
		return false
	}
	return c.announce || len(c.lost) > 0 || c.sentTo < min(c.end, c.limit) || c.fin && !c.finSent && c.sentTo == c.end
}

// appendData appends one data frame, if the stream has data to send and some of it fits.
func (c *Conn) appendData(b []byte, limit int, record *sentPacket) []byte {
	if !c.hasData() {
		return b
	}
	room := uint64(limit - len(b) - maxDataHeader)
	opens := c.id.ours && !c.accepted
	if opens && room > 16 {
		room -= 16 // for the window
	}
	offset, n := c.sentTo, uint64(0)
	if len(c.lost) > 0 {
		offset = c.lost[0].start
		n = min(c.lost[0].end-offset, room)
		c.lost.remove(offset, offset+n)
	} else {
		n = min(c.end-offset, room)
		if offset+n > c.limit {
			n = c.limit - min(offset, c.limit)
		}
		c.sentTo += n
		if c.waiting > 0 && c.end-c.sentTo <= writeAhead/2 {
			c.room.Broadcast()
		}
	}
	fin := c.fin && !c.finSent && offset+n == c.end
	if n == 0 && !fin && !c.announce {
		return b
	}
	c.announce = false
	c.finSent = c.finSent || fin
	b = appendData(b, c.id, opens, c.port, offset, int(n), fin)
	at := len(b)
	b = b[:at+int(n)]
	c.out.read(offset, b[at:])
	record.add(sentFrame{kind: kindData, conn: c, offset: offset, n: int(n), fin: fin, opens: opens})
	if opens && c.needWindow && limit-len(b) >= 16 {
		b = c.appendWindow(b, record)
	}
	return b
}

// ready returns how many bytes may be sent for the first time.
func (c *Conn) ready() int {
	if len(c.lost) > 0 {
		return 0
	}
	return int(min(c.end, max(c.limit, c.sentTo)) - c.sentTo)
}

// appendControl appends the stream's frames other than data.
func (c *Conn) appendControl(b []byte, record *sentPacket) []byte {
	c.inControl = false
	if c.a.streams[c.id] != c {
		return b
	}
	if c.needReset {
		c.needReset, c.needWindow, c.needStop = false, false, false
		record.add(sentFrame{kind: kindReset, conn: c})
		return appendReset(b, c.id, c.reason)
	}
	if c.needWindow {
		b = c.appendWindow(b, record)
	}
	if c.needStop {
		c.needStop = false
		record.add(sentFrame{kind: kindStop, conn: c})
		b = appendStop(b, c.id)
	}
	return b
}

func (c *Conn) appendWindow(b []byte, record *sentPacket) []byte {
	c.needWindow = false
	record.add(sentFrame{kind: kindWindow, conn: c})
	return appendWindow(b, c.id, c.granted)
}

// arrived records that a frame was acknowledged.
func (c *Conn) arrived(f *sentFrame) {
	switch f.kind {
	case kindStop:
		c.unread = true
	case kindReset:
		c.forget()
		return
	case kindData:
		c.finAcked = c.finAcked || f.fin
		if f.n > 0 && c.err == nil && !c.halted {
			c.ackedData(f.offset, f.offset+uint64(f.n))
		}
	}
	c.finish()
}

func (c *Conn) ackedData(start, end uint64) {
	if len(c.lost) > 0 {
		c.lost.remove(start, end)
	}
	if start > c.base {
		c.acked.add(start, end)
		return
	}
	c.base = max(c.base, end)
	for len(c.acked) > 0 && c.acked[0].start <= c.base {
		c.base = max(c.base, c.acked[0].end)
		c.acked = c.acked[1:]
	}
	c.out.drop(c.base, c.base == c.end)
	if c.waiting > 0 {
		c.room.Broadcast()
	}
}

// lostFrame schedules the content of a lost frame for retransmission.
func (c *Conn) lostFrame(f *sentFrame) {
	if c.a.streams[c.id] != c {
		return
	}
	switch f.kind {
	case kindWindow:
		c.needWindow = c.err == nil
	case kindStop:
		c.needStop = c.err == nil
	case kindReset:
		c.needReset = true
	case kindData:
		if c.err != nil || c.halted {
			return
		}
		if start, end := max(f.offset, c.base), f.offset+uint64(f.n); start < end {
			c.lost.add(start, end)
			for _, s := range c.acked {
				c.lost.remove(s.start, s.end)
			}
		}
		if f.fin && !c.finAcked {
			c.finSent = false
		}
		if f.opens && !c.accepted {
			c.announce = true
		}
	}
	c.schedule()
}

// receive processes a data frame.
func (c *Conn) receive(f *frame) {
	c.heard()
	end := f.offset + uint64(len(f.data))
	switch {
	case c.err != nil || c.closed:
		if f.fin && !c.hasFinal {
			c.final, c.hasFinal = end, true
		}
		c.finish()
		return
	case end > c.granted, c.hasFinal && (end > c.final || f.fin && end != c.final), len(c.got) > 0 && f.fin && end < c.got[len(c.got)-1].end,
		f.fin && end < c.read:
		c.abort() // the peer violated the protocol
		return
	}
	if f.fin {
		c.final, c.hasFinal = end, true
	}
	if start := max(f.offset, c.read); start < end {
		had := c.readable()
		if c.got.add(start, end) {
			if len(c.got) > int(c.a.mux.opts.RecvBuffer)/512 {
				c.abort() // too many small gaps
				return
			}
			c.in.write(start, f.data[start-f.offset:])
			if !c.count() {
				c.discard()
				c.abort()
				return
			}
		}
		if had == 0 && c.readable() > 0 {
			c.arrival.Broadcast()
		}
	}
	if c.hasFinal && c.received() {
		c.arrival.Broadcast()
	}
}

// count notes the memory of what has arrived and was not read. It reports whether the peer may use that much, see
// Options.MaxHeld.
func (c *Conn) count() bool {
	change := c.in.size() - c.held
	if change == 0 {
		return true
	}
	c.held += change
	return c.a.count(change)
}

// discard forgets what has arrived and was not read.
func (c *Conn) discard() {
	c.got = nil
	c.in.drop(c.read, true)
	c.count()
}

// readable returns how many bytes a Read may return.
func (c *Conn) readable() uint64 {
	if len(c.got) == 0 || c.got[0].start > c.read {
		return 0
	}
	return c.got[0].end - c.read
}

// received reports whether everything up to the stream's end has arrived.
func (c *Conn) received() bool { return c.hasFinal && c.read+c.readable() == c.final }

// heard records that the peer knows the stream.
func (c *Conn) heard() {
	if !c.accepted {
		c.accepted = true
		close(c.settled)
		c.schedule()
	}
}

func (c *Conn) windowed(limit uint64) {
	c.heard()
	if limit > c.limit {
		c.limit = limit
		c.schedule()
	}
}

// stopped records that the peer no longer reads.
func (c *Conn) stopped() {
	c.heard()
	if c.err != nil || c.halted {
		return
	}
	c.halted, c.fin, c.finSent, c.finAcked = true, true, true, true
	c.lost, c.acked = nil, nil
	c.base, c.sentTo = c.end, c.end
	c.out.drop(c.end, true)
	c.room.Broadcast()
	c.finish()
}

func (c *Conn) reset(reason uint64) {
	if reason == reasonRefused {
		c.over(syscall.ECONNREFUSED)
	} else {
		c.over(syscall.ECONNRESET)
	}
}

// over ends the stream at this end. Bytes that arrived in order can still be read.
func (c *Conn) over(err error) {
	c.stop(err)
	c.forget()
}

// stop is like over, but also notifies the other end.
func (c *Conn) stop(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	c.lost, c.acked = nil, nil
	c.out.drop(c.end, true)
	if !c.accepted {
		c.accepted = true
		close(c.settled)
	}
	c.room.Broadcast()
	c.arrival.Broadcast()
}

// forget removes the stream from the association.
func (c *Conn) forget() {
	if c.a.streams[c.id] != c {
		return
	}
	delete(c.a.streams, c.id)
	c.a.granted -= c.granted - c.read
	if !c.id.ours {
		c.a.incoming--
	}
}

// finish forgets the stream once it has nothing left to send or receive.
func (c *Conn) finish() {
	if c.closed && c.err == nil && c.finAcked && c.base == c.end && (c.hasFinal || c.unread) {
		c.stop(net.ErrClosed)
		c.forget()
	}
}

func (c *Conn) abort() {
	if c.err == nil {
		c.stop(syscall.ECONNRESET)
		c.needReset, c.reason = true, reasonAborted
		c.schedule()
	}
}

// Abort ends the stream in both directions immediately. Unacknowledged data may never arrive.
func (c *Conn) Abort() {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	c.abort()
	c.a.kick(c.a.now())
}

// Refuse rejects a stream that the peer opened, because nothing serves the port.
func (c *Conn) Refuse() {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	c.refuse()
	c.a.kick(c.a.now())
}

func (c *Conn) refuse() {
	c.discard()
	c.stop(syscall.ECONNREFUSED)
	c.needReset, c.reason = true, reasonRefused
	c.schedule()
}

// accept tells the other end that this end serves the stream.
func (c *Conn) accept() {
	c.a.mu.Lock()
	defer c.a.mu.Unlock()
	if c.err == nil {
		c.grant()
		c.needWindow = true
		c.schedule()
		c.a.kick(c.a.now())
	}
}

// grant lets the peer send more. a.mu must be held.
func (c *Conn) grant() {
	had := c.granted - c.read
	if window := c.a.grant(had); window > had {
		c.a.granted += window - had
		c.granted = c.read + window
		c.needWindow = true
		c.schedule()
	}
}
