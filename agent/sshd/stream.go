package sshd

import (
	"bufio"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	readBuffer = 64 << 10
	// writeLimit is how many bytes may wait for the transport; a writer blocks above it.
	writeLimit = 256 << 10
	// writeBuffer leaves room for one more packet above the limit.
	writeBuffer = writeLimit + 64<<10
	// flushTimeout is how long a closed connection may still write what it had accepted.
	flushTimeout = 5 * time.Second
)

var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeBuffer); return &b }}

// stream is the transport of one SSH connection with large buffers. The SSH library reads and writes packet by packet through
// 4 KiB ones; here many packets go down in one write, and encryption overlaps with it. A write is on its way at once: it is
// taken by a goroutine that waits for nothing else.
//
// Deadlines are ignored: the SSH server above sets one on every call, only to clear it.
type stream struct {
	raw    net.Conn
	owner  *conn
	reader *bufio.Reader // used by one goroutine
	done   chan struct{} // closed when raw is closed

	mu      sync.Mutex // guards the fields below
	ready   sync.Cond  // something to write, or closing
	room    sync.Cond  // room to write, or closing
	pending *[]byte    // accepted, not yet written; nil means empty
	closing bool
	err     error // of the transport
}

func newStream(raw net.Conn, owner *conn) *stream {
	s := &stream{raw: raw, owner: owner, reader: bufio.NewReaderSize(raw, readBuffer), done: make(chan struct{})}
	s.ready.L, s.room.L = &s.mu, &s.mu
	go s.writeLoop()
	return s
}

func (s *stream) ended() <-chan struct{} { return s.done }

func (s *stream) Read(b []byte) (int, error) { return s.reader.Read(b) }

// Write accepts b and blocks only while too much waits already.
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for written := 0; ; {
		for s.pending != nil && len(*s.pending) >= writeLimit && !s.closing && s.err == nil {
			s.room.Wait()
		}
		switch {
		case s.err != nil:
			return written, s.err
		case s.closing:
			return written, net.ErrClosed
		}
		if s.pending == nil {
			s.pending = writeBuffers.Get().(*[]byte)
		}
		n := min(len(b)-written, writeBuffer-len(*s.pending))
		*s.pending = append(*s.pending, b[written:written+n]...)
		s.ready.Signal()
		if written += n; written == len(b) {
			return written, nil
		}
	}
}

// writeLoop writes what was accepted, and closes the transport when the stream is closed or the transport has failed.
func (s *stream) writeLoop() {
	defer close(s.done)
	defer s.raw.Close()
	for {
		s.mu.Lock()
		for s.pending == nil && !s.closing {
			s.ready.Wait()
		}
		batch := s.pending
		s.pending = nil
		s.room.Broadcast()
		s.mu.Unlock()
		if batch == nil {
			return
		}
		_, err := s.raw.Write(*batch)
		*batch = (*batch)[:0]
		writeBuffers.Put(batch)
		if err != nil {
			s.mu.Lock()
			s.err = err
			s.room.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

// Close accepts no more, and returns at once: what was accepted is still written for flushTimeout, then the transport is
// closed.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return nil
	}
	s.closing = true
	s.ready.Signal()
	s.room.Broadcast()
	if err := s.raw.SetWriteDeadline(time.Now().Add(flushTimeout)); err != nil && !errors.Is(err, net.ErrClosed) {
		return s.raw.Close() // a transport without deadlines must not keep the goroutine
	}
	return nil
}

func (s *stream) LocalAddr() net.Addr              { return s.raw.LocalAddr() }
func (s *stream) RemoteAddr() net.Addr             { return s.raw.RemoteAddr() }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }
