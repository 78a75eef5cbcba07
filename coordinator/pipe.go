package coordinator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
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

func newPipe() (client, server *pipeEnd) {
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

// Dialer returns a DialFunc that connects participants of this process, as p, without a websocket. The same rules apply to them. It is for
// ClientOptions.Dial.
func (s *Server) Dialer(p Principal) DialFunc {
	return func(ctx context.Context, h Hello) (Conn, error) {
		h.At = time.Now()
		if err := s.precheck(p, h); err != nil {
			return nil, err
		}
		client, server := newPipe()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.closed {
			return nil, fault.New(fault.Unavailable, "the server is stopping")
		}
		s.serving.Go(func() {
			if err := s.Serve(context.WithoutCancel(ctx), server, p, h); err != nil {
				s.log.Debug("mesh connection ended", "peer", p.ID, "kind", string(p.Kind), "err", err)
			}
		})
		return client, nil
	}
}

// Attach connects a node of this process: it returns a Client on Dialer(p) that runs until closed. Attach sets Dial and Kind of opts
// itself. It is for coderd's own node and for built-in provisioners.
func (s *Server) Attach(p Principal, opts ClientOptions) *Client {
	opts.Dial, opts.Kind = s.Dialer(p), p.Kind
	c := NewClient(opts)
	c.Start()
	return c
}
