package protocol

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/websock"
)

// pipeDepth is how many messages one direction of a pipe holds before writes wait.
const pipeDepth = 16

// pipeEnd is one end of a connection inside the process.
type pipeEnd struct {
	in, out chan []byte
	shared  *pipeState
	limit   int // of messages read, in bytes
}

type pipeState struct {
	once   sync.Once
	closed chan struct{}
	why    atomic.Pointer[websock.CloseError]
}

// Pipe returns both ends of a connection inside the process, with the limits of a real one. Writes block while the
// other end has not read several earlier messages.
func Pipe() (client, server Conn) {
	a, b := make(chan []byte, pipeDepth), make(chan []byte, pipeDepth)
	shared := &pipeState{closed: make(chan struct{})}
	return &pipeEnd{a, b, shared, MaxServerMessage}, &pipeEnd{b, a, shared, MaxClientMessage}
}

// Read returns messages written before the pipe was closed, and only then its error.
func (e *pipeEnd) Read(ctx context.Context) ([]byte, error) {
	select {
	case data := <-e.in:
		return e.check(data)
	default:
	}
	select {
	case data := <-e.in:
		return e.check(data)
	case <-e.shared.closed:
	case <-ctx.Done():
		e.Close(websock.StatusGoingAway, "")
		return nil, ctx.Err()
	}
	select {
	case data := <-e.in:
		return e.check(data)
	default:
		return nil, e.shared.why.Load()
	}
}

func (e *pipeEnd) check(data []byte) ([]byte, error) {
	if len(data) > e.limit {
		e.Close(websock.StatusTooBig, "")
		return nil, websock.ErrTooBig
	}
	return data, nil
}

func (e *pipeEnd) Write(ctx context.Context, data []byte) error {
	select {
	case <-e.shared.closed:
		return e.shared.why.Load()
	default:
	}
	select {
	case e.out <- slices.Clone(data):
		return nil
	case <-e.shared.closed:
		return e.shared.why.Load()
	case <-ctx.Done():
		e.Close(websock.StatusGoingAway, "")
		return ctx.Err()
	}
}

func (e *pipeEnd) Close(status websock.Status, reason string) error {
	e.shared.once.Do(func() {
		e.shared.why.Store(&websock.CloseError{Status: status, Reason: reason})
		close(e.shared.closed)
	})
	return nil
}

// LastSeen returns the current time, because the other end is this process.
func (e *pipeEnd) LastSeen() time.Time { return time.Now() }
