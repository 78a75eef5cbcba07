package httpapi

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
)

const (
	// BodyTimeout is how long a request's body may take to arrive. JSON bodies have a megabyte at most.
	BodyTimeout = 20 * time.Second
	// uploadTimeout is the same for an upload that AllowUpload lets in. It must not pause for longer than BodyTimeout either.
	uploadTimeout = 15 * time.Minute
)

// BoundBodies gives the body of every request that next serves a deadline: a client that announces a body and does not send it
// would hold a connection, and what its handler holds, for ever. Requests without a body, which includes websockets, have none.
// A timeout of zero means BodyTimeout.
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

// boundBody is a request's body with a deadline, which ends with the body: the server goes on reading, to notice that the client
// has gone, and takes a deadline for that.
type boundBody struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
	until   atomic.Pointer[time.Time] // of an upload: its end
	over    atomic.Bool               // has no deadline any more
}

func (b *boundBody) extend(d time.Duration) {
	_ = b.control.SetReadDeadline(time.Now().Add(d)) // fails where there is no connection to bound
}

func (b *boundBody) unbound() {
	if !b.over.Swap(true) {
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

func (b *boundBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.unbound()
	}
	if until := b.until.Load(); err == nil && until != nil && !b.over.Load() {
		b.extend(min(b.timeout, time.Until(*until)))
	}
	return n, err
}

// bodyOf finds the bounded body of a request, nil when there is none.
func bodyOf(r *http.Request) *boundBody {
	b, _ := r.Body.(*boundBody)
	return b
}

// AllowUpload gives the request's body as much time as an upload needs, for as long as it goes on arriving.
func AllowUpload(r *http.Request) {
	if b := bodyOf(r); b != nil {
		until := time.Now().Add(uploadTimeout)
		b.until.Store(&until)
		b.extend(b.timeout)
	}
}

// UnboundBody takes the deadline off the request's body, for a handler that passes on what a visitor may send for ever.
func UnboundBody(r *http.Request) {
	if b := bodyOf(r); b != nil {
		b.unbound()
	}
}

// BodyFault says what went wrong with reading a body: its fault when the client is to blame, else nil.
func BodyFault(err error) *fault.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return fault.New(fault.TooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.New(fault.Invalid, "The body did not arrive in time.").WithDetail("Send it without pauses, or over a faster connection.")
	}
	return nil
}
