package bridge

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// readChunk is the maximum number of bytes read from OpenSSH at once.
	readChunk = 128 << 10
	// writeLimit is how many bytes may wait for OpenSSH; a writer blocks above it.
	writeLimit = 256 << 10
	// writeBuffer leaves room for one more packet above the limit.
	writeBuffer = writeLimit + 64<<10
)

// stream is the pipe to OpenSSH with large buffers. The SSH library reads and writes single packets through 4 KiB
// buffers. Here one system call moves many packets, and encryption overlaps with it. A dedicated goroutine sends
// written data immediately. Another one reads, so that Read returns when the stream is closed even if the pipe's Read
// does not.
//
// It does not support deadlines or addresses: the SSH library needs neither.
type stream struct {
	raw io.ReadWriteCloser

	chunks, free chan []byte      // filled chunks that Read has not consumed; chunks to read into
	readErr      error            // why chunks is closed
	rest         []byte           // unread part of chunk
	chunk        []byte           // the chunk that Read consumes
	until        <-chan time.Time // when Read times out; nil: never. Owned by the caller of Read
	ended        chan struct{}    // closed by Close
	flushed      chan struct{}    // closed when everything is written and raw is closed

	mu      sync.Mutex // guards the fields below
	ready   sync.Cond  // pending is not empty, or closing
	room    sync.Cond  // room to write, or closing
	pending []byte     // accepted, not yet written
	spare   []byte     // the other buffer, nil while it is being written
	closing bool
	err     error // of a write
}

func newStream(raw io.ReadWriteCloser) *stream {
	s := &stream{
		raw: raw, chunks: make(chan []byte, 2), free: make(chan []byte, 2), ended: make(chan struct{}),
		flushed: make(chan struct{}),
		pending: make([]byte, 0, writeBuffer), spare: make([]byte, 0, writeBuffer),
	}
	s.free <- make([]byte, readChunk)
	s.free <- make([]byte, readChunk)
	s.ready.L, s.room.L = &s.mu, &s.mu
	go s.readLoop()
	go s.writeLoop()
	return s
}

// readLoop reads until the pipe ends, or until the process does if the pipe's Read cannot be interrupted.
func (s *stream) readLoop() {
	defer close(s.chunks)
	for {
		var chunk []byte
		select {
		case chunk = <-s.free:
		case <-s.ended:
			s.readErr = net.ErrClosed
			return
		}
		n, err := s.raw.Read(chunk[:readChunk])
		if n > 0 {
			s.chunks <- chunk[:n] // there is room for both
		}
		if err != nil {
			s.readErr = err
			return
		}
	}
}

// Read must be called by only one goroutine at a time.
func (s *stream) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		if s.chunk != nil {
			s.free <- s.chunk // there is room for both
			s.chunk = nil
		}
		select {
		case chunk, ok := <-s.chunks:
			if !ok {
				return 0, s.readErr
			}
			s.chunk, s.rest = chunk, chunk
		case <-s.ended:
			return 0, net.ErrClosed
		case <-s.until:
			return 0, os.ErrDeadlineExceeded
		}
	}
	n := copy(b, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Write queues b and blocks only while too much data is already waiting.
func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for written := 0; ; {
		for len(s.pending) >= writeLimit && !s.closing && s.err == nil {
			s.room.Wait()
		}
		switch {
		case s.err != nil:
			return written, s.err
		case s.closing:
			return written, net.ErrClosed
		}
		n := min(len(b)-written, writeBuffer-len(s.pending))
		s.pending = append(s.pending, b[written:written+n]...)
		s.ready.Signal()
		if written += n; written == len(b) {
			return written, nil
		}
	}
}

// writeLoop writes queued data, and closes the pipe when the stream is closed or the pipe has failed.
func (s *stream) writeLoop() {
	defer close(s.flushed)
	defer s.raw.Close()
	for {
		s.mu.Lock()
		for len(s.pending) == 0 && !s.closing {
			s.ready.Wait()
		}
		batch := s.pending
		s.pending, s.spare = s.spare, nil
		s.room.Broadcast()
		s.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		_, err := s.raw.Write(batch)
		s.mu.Lock()
		s.spare = batch[:0]
		if s.err = err; err != nil {
			s.room.Broadcast()
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Close stops Write from accepting data and ends Read. It returns immediately; flushed is closed when all queued data
// is written.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.closing = true
		close(s.ended)
		s.ready.Signal()
		s.room.Broadcast()
	}
	return nil
}

func (s *stream) LocalAddr() net.Addr              { return pipe{} }
func (s *stream) RemoteAddr() net.Addr             { return pipe{} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// pipe is the address of both ends.
type pipe struct{}

func (pipe) Network() string { return "pipe" }
func (pipe) String() string  { return "pipe" }
