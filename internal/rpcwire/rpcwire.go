// Package rpcwire gives handlers of streaming RPCs what the RPC library hides: the deadlines of the underlying HTTP
// exchange, which end a hanging read or write.
package rpcwire

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
)

// Wire is the exchange of one stream. It is safe for concurrent use.
type Wire struct {
	control *http.ResponseController

	mu    sync.Mutex // guards what follows, and every use of control
	cause error      // why the exchange was ended, or nil
	over  bool       // the handler has returned: control must not be used, because HTTP/2's response writer would panic
}

var errOver = errors.New("the exchange is over: its handler has returned")

// CompressFrom is the size in bytes from which responses are worth compressing. Shorter ones, such as the answers to
// heartbeats, would grow, and each would occupy a compressor of 1 MB for as long as the collector lets it live.
const CompressFrom = 1 << 10

type key struct{}

// Handler makes the exchange available to the RPC handlers below next, through From.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wire := &Wire{control: http.NewResponseController(w)}
		defer wire.close()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, wire)))
	})
}

// From returns the exchange of a handler's context. It fails if the handler is not below Handler.
func From(ctx context.Context) (*Wire, error) {
	wire, ok := ctx.Value(key{}).(*Wire)
	if !ok {
		return nil, connect.NewError(connect.CodeInternal, errors.New("the stream has no deadlines"))
	}
	return wire, nil
}

// close keeps everyone who still holds the exchange from using it.
func (w *Wire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// AwaitRead sets a deadline of d from now for all further reads; 0 means none. Once the exchange was ended it returns
// the cause, and it fails after the handler has returned.
func (w *Wire) AwaitRead(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cause != nil:
		return w.cause
	case w.over:
		return errOver
	}
	return w.control.SetReadDeadline(after(d))
}

// AwaitWrite sets a deadline of d from now for all further writes; 0 means none. A deadline that passes ends the
// exchange, even if nothing is being written. It fails after the handler has returned.
func (w *Wire) AwaitWrite(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return errOver
	}
	return w.control.SetWriteDeadline(after(d))
}

// after returns the time d from now, or the zero time for 0.
func after(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// End fails the present and all later reads. Only the first cause counts. It may be called after the handler has
// returned.
func (w *Wire) End(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return
	}
	w.cause = cause
	if !w.over {
		// The only error is "not supported", which AwaitRead meets before; then the end of the connection ends the
		// reader.
		_ = w.control.SetReadDeadline(time.Unix(1, 0))
	}
}

// Cause returns the cause that was passed to End, or nil.
func (w *Wire) Cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}
