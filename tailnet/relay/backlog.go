package relay

import (
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxBacklog is how much may wait for one node before writes block, in bytes: what a path of 200 ms carries at 170 Mbit/s.
	// The library then drops packets once its own queue is full.
	maxBacklog = 4 << 20
	// blockSize is the size of the blocks of a backlog, and how much is written at once, in bytes.
	blockSize = 64 << 10
)

// backlog is a node's connection whose writes do not wait for the network. The library writes a packet or two at a time, and
// drops packets when hundreds wait: a burst from one node's fast connection, such as all that waited behind a lost packet,
// would lose most of its packets at the other's slow one. A backlog writes what has gathered at once, and uses memory only
// while something waits. What waits is lost when the connection is closed.
type backlog struct {
	net.Conn
	table *backlogs // forgets the backlog when it is closed
	node  nodeID    // its key in table, once it is there; guarded by table

	mu       sync.Mutex
	blocks   []*block
	size     int // bytes that wait, those that are being written included
	flushing bool
	deadline time.Time
	room     chan struct{} // closed when something was written to Conn; nil if no write waits for room
	err      error         // of the latest write to Conn
	owed     int           // bytes that senders have passed to the library and Write has not seen; dropped packets included
	paid     chan struct{} // closed when Write has seen enough of them; nil if no sender waits
}

type block struct {
	data [blockSize]byte
	n    int
}

var blocks = sync.Pool{New: func() any { return new(block) }}

// Write queues b. It blocks while the backlog is full, until the write deadline. It returns the error of an earlier write.
func (l *backlog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.size >= maxBacklog && l.err == nil {
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
	for rest := b; len(rest) > 0; {
		if len(l.blocks) == 0 || l.blocks[len(l.blocks)-1].n == blockSize {
			l.blocks = append(l.blocks, blocks.Get().(*block))
		}
		last := l.blocks[len(l.blocks)-1]
		n := copy(last.data[last.n:], rest)
		last.n += n
		rest = rest[n:]
	}
	l.size += len(b)
	if !l.flushing {
		l.flushing = true
		go l.flush()
	}
	return len(b), nil
}

// owe records that a sender is about to pass a frame of n bytes for this node to the library. It blocks while much is owed, unless
// the backlog is full.
func (l *backlog) owe(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owed > maxOwed && l.size < maxBacklog && l.err == nil && !l.waitLocked(&l.paid, time.Now().Add(patience)) {
		l.owed = 0 // the library has dropped it
	}
	l.owed += n
}

// waitLocked blocks until event is released, or until a time that is not zero: then it returns false. It releases mu meanwhile.
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
	for {
		l.mu.Lock()
		waiting := l.blocks
		l.blocks = nil
		if len(waiting) == 0 || l.err != nil {
			l.flushing = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()

		var err error
		for _, block := range waiting {
			if err == nil {
				_, err = l.Conn.Write(block.data[:block.n])
			}
			l.mu.Lock()
			l.size -= block.n
			l.err = err
			l.release(&l.room)
			l.mu.Unlock()
			block.n = 0
			blocks.Put(block)
		}
	}
}

// SetWriteDeadline limits how long a write may wait for room. What waits may take longer.
func (l *backlog) SetWriteDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = t
	return nil
}

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (l *backlog) SetDeadline(t time.Time) error {
	_ = l.SetWriteDeadline(t) // never fails
	return l.SetReadDeadline(t)
}
