package stripe

import (
	"encoding/binary"
	"io"
	"math/bits"
	"slices"
	"time"
)

// A connection that loses packets may need seconds for what it has accepted, and everything behind that in the stream waits for it.
// So the ends of a stream of several connections tell each other what has arrived, and what is late is sent again by
// another connection. Whichever copy comes first counts.

const (
	// reportMark and more is the length of a header that is no chunk's: a report. What it is more by is the number of its offsets.
	reportMark = 1<<32 - 1<<8
	maxReport  = 16 // offsets in one report
	// soon is how many arrivals are reported at once; fewer wait for others for reportDelay.
	soon        = 8
	reportDelay = 5 * time.Millisecond
	// lookoutEvery is how often idle connections look for chunks that are late.
	lookoutEvery = 25 * time.Millisecond
	// maxDoubling is how often the time doubles until a chunk is sent once more.
	maxDoubling = 4
	// maxNews bounds what was not reported. An honest end has not that much under way.
	maxNews = 4 * maxPieces
	// The bounds of how long a chunk may take before it is late, and how long before that is known.
	minPatience   = 100 * time.Millisecond
	maxPatience   = 3 * time.Second
	firstPatience = time.Second
)

// resend is the sending side's part. It is guarded by Conn.mu.
type resend struct {
	kept    []*chunk // what was sent and has not arrived yet, as far as is known, by offset
	acked   uint64   // everything before it has arrived
	lookout *time.Timer
	// Of the time from taking a chunk to the report of its arrival: a mean and a mean deviation, as TCP's (RFC 6298, section 2).
	mean, deviation time.Duration
	pace
}

// report is the receiving side's part. It is guarded by Conn.mu.
type report struct {
	// reporting tells that the other end may rely on reports: a connection has joined, or may have.
	reporting bool
	news      []uint64 // offsets of chunks that arrived and were not reported
	due       bool     // a report is due, whatever is in news
	said      uint64   // up to where the last report said that everything is here
	tell      *time.Timer
}

// keep remembers a chunk that was handed out until it arrives.
func (c *Conn) keep(ck *chunk) {
	if len(c.stripes) == 1 {
		return
	}
	ck.kept = true
	ck.by.carries++
	c.kept = append(c.kept, ck)
	switch {
	case c.lookout == nil:
		c.lookout = time.AfterFunc(lookoutEvery, c.look)
	case len(c.kept) == 1:
		c.lookout.Reset(lookoutEvery)
	}
}

// look wakes connections that have nothing to do while anything may be late.
func (c *Conn) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || len(c.kept) == 0 {
		return
	}
	if time.Since(c.kept[0].at) >= c.patience() {
		c.wakeSenders()
	}
	c.lookout.Reset(lookoutEvery)
}

// patience is how long a chunk may take.
func (c *Conn) patience() time.Duration {
	if c.mean == 0 {
		return firstPatience
	}
	return min(max(2*c.mean+4*c.deviation, minPatience), maxPatience)
}

// lateLocked hands a connection the first chunk that is late and that it has not sent itself, if there is one.
func (c *Conn) lateLocked(o *outlet) *chunk {
	if len(c.kept) == 0 {
		return nil
	}
	now, patience := time.Now(), c.patience()
	for _, ck := range c.kept {
		tries := bits.OnesCount32(ck.took)
		late := now.Sub(ck.at) >= patience<<min(tries-1, maxDoubling)
		if !late && tries == 1 {
			return nil // those after it are younger
		}
		if late && ck.took&o.bit == 0 {
			ck.by.carries--
			o.carries++
			c.hand(ck, o)
			return ck
		}
	}
	return nil
}

// reported takes in a report: everything before the offset is there, and the chunks at the offsets.
func (c *Conn) reported(before uint64, at []uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before > c.next {
		return errProtocol
	}
	now, full := time.Now(), len(c.kept) >= c.allowed()
	c.acked = max(c.acked, before)
	slices.Sort(at)
	c.kept = slices.DeleteFunc(c.kept, func(ck *chunk) bool {
		_, here := slices.BinarySearch(at, ck.offset)
		if here && ck.took == ck.by.bit { // it was sent once
			c.sample(now.Sub(ck.at))
		}
		if here = here || ck.offset < c.acked; here {
			ck.kept = false
			ck.by.carries--
			c.release(ck)
		}
		return here
	})
	c.adjust(now, len(c.kept), full)
	if c.mayTake() {
		c.poke()
	}
	if len(c.kept) == 0 {
		c.room.Broadcast()
	}
	return nil
}

// sample takes in how long a chunk took.
func (c *Conn) sample(d time.Duration) {
	c.pace.sample(d)
	if c.mean == 0 {
		c.mean, c.deviation = d, d/2
		return
	}
	c.deviation += ((d - c.mean).Abs() - c.deviation) / 4
	c.mean += (d - c.mean) / 8
}

// arrivedLocked notes a chunk for the next report.
func (c *Conn) arrivedLocked(offset uint64) {
	if !c.reporting {
		return
	}
	if len(c.news) >= maxNews {
		c.failLocked(errProtocol) // it sends what is here again and again, and reads no reports
		return
	}
	switch c.news = append(c.news, offset); {
	case len(c.news) == soon:
		c.poke()
	case len(c.news) > 1:
	case c.tell == nil:
		c.tell = time.AfterFunc(reportDelay, c.tellNow)
	default:
		c.tell.Reset(reportDelay)
	}
}

func (c *Conn) tellNow() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.news) > 0 {
		c.due = true
		c.poke()
	}
}

// reportLocked is the next report, or nil if none is due.
func (c *Conn) reportLocked() []byte {
	if len(c.news) < soon && !c.due {
		return nil
	}
	return c.reportNow()
}

// reportNow is the next report, whether one is due or not. c.mu must be held.
func (c *Conn) reportNow() []byte {
	n := min(len(c.news), maxReport)
	c.said = c.needed()
	frame := binary.BigEndian.AppendUint64(make([]byte, 0, headerSize+8*n), c.said)
	frame = binary.BigEndian.AppendUint32(frame, reportMark+uint32(n))
	for _, offset := range c.news[:n] {
		frame = binary.BigEndian.AppendUint64(frame, offset)
	}
	c.news = slices.Delete(c.news, 0, n)
	c.due = len(c.news) > 0
	if c.due {
		c.poke()
	}
	return frame
}

// consumedLocked has it reported that the reader has made room, when that is much.
func (c *Conn) consumedLocked() {
	if c.reporting && !c.due && c.needed()-c.said >= Window/4 {
		c.due = true
		c.poke()
	}
}

// readReport reads the offsets of a report.
func (c *Conn) readReport(in io.Reader, before uint64, n int) error {
	if n > maxReport {
		return errProtocol
	}
	var buf [8 * maxReport]byte
	if err := readFull(in, buf[:8*n]); err != nil {
		return err
	}
	at := make([]uint64, n)
	for i := range at {
		at[i] = binary.BigEndian.Uint64(buf[8*i:])
	}
	return c.reported(before, at)
}
