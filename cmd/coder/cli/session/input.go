package session

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// input is standard input for several tries of a session. A read of standard input cannot be interrupted: if a try ends
// during one, the next try gets what it returns.
type input struct {
	source io.Reader
	once   sync.Once
	chunks chan []byte
	err    error // why the source ended; set before chunks is closed
	taken  atomic.Bool
	over   chan struct{} // closed when nothing reads any more
}

const inputChunk = 32 << 10

func newInput(source io.Reader) *input {
	return &input{source: source, chunks: make(chan []byte), over: make(chan struct{})}
}

// close ends the pump, unless it waits for the source: nothing waits for it then, and the process exits after the
// session.
func (in *input) close() { close(in.over) }

// reader returns what a try reads until done is closed.
func (in *input) reader(done <-chan struct{}) io.Reader {
	in.once.Do(func() { go in.pump() })
	return &inputReader{in: in, done: done}
}

func (in *input) pump() {
	defer close(in.chunks)
	for in.err == nil {
		chunk := make([]byte, inputChunk)
		var n int
		if n, in.err = in.source.Read(chunk); n > 0 {
			select {
			case in.chunks <- chunk[:n]:
			case <-in.over:
				return
			}
		}
	}
}

type inputReader struct {
	in   *input
	done <-chan struct{}
	rest []byte
}

// Read marks the input as taken before it returns any of it.
func (r *inputReader) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		select {
		case chunk, ok := <-r.in.chunks:
			if !ok {
				return 0, r.in.err
			}
			r.in.taken.Store(true)
			r.rest = chunk
		case <-r.done:
			return 0, errTryOver
		}
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

var errTryOver = errors.New("this try of the session is over")
