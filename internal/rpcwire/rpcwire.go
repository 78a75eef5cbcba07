// Package rpcwire gives handlers of streaming RPCs what the RPC library hides: the deadlines of the underlying HTTP exchange,
// which end a hanging read or write.
package rpcwire

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// Wire is the exchange of one stream. Safe for concurrent use.
type Wire struct {
	control *http.ResponseController

	mu    sync.Mutex // guards cause, and the order of deadlines
	cause error      // why it was ended, nil while it is not
}

type key struct{}

// Handler lets the RPC handlers below next find their exchange with From.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire := &Wire{control: http.NewResponseController(w)}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, wire)))
	})
}

// From is the exchange of a handler's context. It fails when Handler does not serve it.
func From(ctx context.Context) (*Wire, error) {
	wire, ok := ctx.Value(key{}).(*Wire)
	if !ok {
		return nil, connect.NewError(connect.CodeInternal, errors.New("the stream has no deadlines"))
	}
	return wire, nil
}

// AwaitRead gives the reads from now on d to end, all together. It returns the cause once the exchange was ended.
func (w *Wire) AwaitRead(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return w.cause
	}
	return w.control.SetReadDeadline(time.Now().Add(d))
}

// AwaitWrite gives the writes from now on d to end, all together.
func (w *Wire) AwaitWrite(d time.Duration) error {
	return w.control.SetWriteDeadline(time.Now().Add(d))
}

// End fails the present and all later reads. Only the first cause counts.
func (w *Wire) End(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = cause
		// The only error is "not supported", which AwaitRead meets before; there the end of the connection ends the reader.
		_ = w.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// Cause is what End was called with, nil before.
func (w *Wire) Cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}
