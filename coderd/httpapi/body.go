package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// BodyTimeout is how long a request's body may take to arrive. JSON bodies are at most one megabyte.
	BodyTimeout = 20 * time.Second
	// uploadTimeout is the same for an upload that AllowUpload permits. The upload must still not pause for longer than
	// BodyTimeout.
	uploadTimeout = 15 * time.Minute
)

// BoundBodies sets a deadline on the body of every request that next serves. Otherwise a client that announces a body
// and does not send it would hold a connection, and what its handler holds, forever. Requests without a body, including
// websockets, have no deadline. A timeout of zero means BodyTimeout.
func BoundBodies(next http.Handler, timeout time.Duration) http.Handler {
	if timeout == 0 {
		timeout = BodyTimeout
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next.ServeHTTP(w, r)
			return
		}
		b := &boundBody{ReadCloser: r.Body, control: http.NewResponseController(w), timeout: timeout}
		b.extend(timeout)
		bounded := *r // the server closes the body of its own request
		bounded.Body = b
		next.ServeHTTP(w, &bounded)
	})
}

// boundBody is a request's body with a deadline. The deadline ends with the body, because the server keeps reading to
// notice when the client disconnects, and would mistake an expired deadline for that.
type boundBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	until   atomic.Pointer[time.Time] // when an upload must end
	pause   atomic.Int64              // how long a read of a transfer may wait; 0 for others
	over    atomic.Bool               // no longer has a deadline
}

func (b *boundBody) extend(d time.Duration) {
	_ = b.control.SetReadDeadline(time.Now().Add(d)) // fails if there is no connection to bound
}

func (b *boundBody) unbound() {
	if !b.over.Swap(true) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

func (b *boundBody) Read(p []byte) (int, error) {
	pause := time.Duration(b.pause.Load())
	if pause > 0 {
		b.extend(pause)
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.unbound()
	}
	if pause > 0 && err == nil {
		_ = b.control.SetReadDeadline(time.Time{}) // HTTP/2 ends a stream whose deadline expires between two reads
	}
	if until := b.until.Load(); err == nil && until != nil && !b.over.Load() {
		b.extend(min(b.timeout, time.Until(*until)))
	}
	return n, err
}

// bodyOf returns the bounded body of a request, or nil if there is none.
func bodyOf(r *http.Request) *boundBody {
	body := r.Body
	if s, ok := body.(*summed); ok {
		body = s.ReadCloser
	}
	b, _ := body.(*boundBody)
	return b
}

// AllowUpload gives the request's body as much time as an upload needs, as long as data keeps arriving.
func AllowUpload(r *http.Request) {
	if b := bodyOf(r); b != nil {
		until := time.Now().Add(uploadTimeout)
		b.until.Store(&until)
		b.extend(b.timeout)
	}
}

// AllowTransfer gives the request's body as long as it takes, for a handler that passes it on to something slower. A
// read may wait for pause.
func AllowTransfer(r *http.Request, pause time.Duration) {
	if b := bodyOf(r); b != nil && !b.over.Load() {
		b.pause.Store(int64(pause))
		_ = b.control.SetReadDeadline(time.Time{}) // fails if there is no connection to bound
	}
}

// UnboundBody removes the deadline of the request's body, for a handler that forwards what a visitor may send
// indefinitely.
func UnboundBody(r *http.Request) {
	if b := bodyOf(r); b != nil {
		b.unbound()
	}
}

// BodyFault returns the fault for an error from reading a body if the client caused it, else nil.
func BodyFault(err error) *fault.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(fault.TooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Invalid, "The body did not arrive in time.").
			WithDetail("Send it without pauses, or over a faster connection.")
	}
	return nil
}
