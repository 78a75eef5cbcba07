package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const (
	// gatewayPatience is how long requests that may be repeated are repeated while a proxy answers that it reached no
	// server. A load balancer that asks /healthz has taken a server that died out of service by then.
	gatewayPatience = 10 * time.Second
	// DatabasePatience is how long a client with Options.Waiting repeats requests while the server's database is not
	// reachable. A standby is usually promoted in that time.
	DatabasePatience = 30 * time.Second
	// slowAnswer is how long a server may be silent before the user is told. Requests usually take milliseconds.
	slowAnswer = 4 * time.Second
)

// errGateway is the cause of faults for answers of 502, 503 and 504 that a proxy gave in a server's place.
var errGateway = errors.New("a proxy reached no server")

// errUnreachable is a cause of faults for requests without an answer.
var errUnreachable = errors.New("no answer")

// Wait is what requests wait for.
type Wait struct {
	Reason string        // a sentence
	Limit  time.Duration // how long they wait at most
	Slow   bool          // the server has not answered yet, and has given no reason
}

// waiting tells the user what requests wait for, once until one of them succeeds. A nil *waiting means that requests do
// not wait.
type waiting struct {
	report func(Wait)
	away   atomic.Bool // the user knows that the database is away
	slow   atomic.Bool // the user knows that the server is slow
}

// succeeded makes the next wait one that the user has not been told of.
func (w *waiting) succeeded() {
	if w != nil {
		w.away.Store(false)
		w.slow.Store(false)
	}
}

// during makes one attempt and tells the user when it takes long.
func (w *waiting) during(try func() (*http.Response, error)) (*http.Response, error) {
	if w == nil {
		return try()
	}
	timer := time.AfterFunc(slowAnswer, func() {
		if !w.away.Load() && !w.slow.Swap(true) {
			w.report(Wait{
				Reason: fmt.Sprintf("The server has not answered for %s.", slowAnswer), Limit: callTimeout, Slow: true,
			})
		}
	})
	defer timer.Stop()
	return try()
}

// attempts is one request, and how often it may be made.
type attempts struct {
	harmless bool // the request changes nothing
	keyed    bool // the server recognizes by a key that the request is repeated
	upload   bool // it may take long to send
	waiting  *waiting
	try      func() (*http.Response, error)
}

// patience returns how long the request is repeated after it failed with err. cut says that an earlier attempt ended
// without an answer.
func (a attempts) patience(err error, cut bool) time.Duration {
	f := fault.As(err)
	if f == nil {
		return 0
	}
	again := a.harmless || a.keyed
	switch {
	case f.Reason == fault.DatabaseUnreachable && a.waiting != nil && (again || f.Unchanged):
		return DatabasePatience
	case again && (errors.Is(err, errGateway) || cut && errors.Is(err, errUnreachable)):
		return gatewayPatience
	}
	return 0
}

// isCut reports whether a connection ended before the answer, so that the request may have been carried out.
func isCut(err error) bool {
	if !errors.Is(err, errUnreachable) {
		return false
	}
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	// net/http has no errors of its own for connections of HTTP/2.
	text := fault.As(err).Cause.Error()
	return strings.Contains(text, "http2: ") || strings.Contains(text, "stream error: ")
}

// run makes the request, and repeats it while that may help: while a proxy answers that it reached no server, after a
// connection was cut, or while the server says that its database is not reachable. A request that changes something is
// repeated only if it has a key by which the server recognizes it, or if the server says that it changed nothing. run
// returns the last answer, or the context's error if it was canceled.
func (a attempts) run(ctx context.Context) (*http.Response, error) {
	again := backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second}
	cut := false
	for begin := time.Now(); ; {
		resp, err := a.once()
		if err == nil {
			a.waiting.succeeded()
		}
		cut = cut || isCut(err)
		if err == nil || time.Since(begin) >= a.patience(err, cut) {
			return resp, err
		}
		if f := fault.As(err); f.Reason == fault.DatabaseUnreachable && !a.waiting.away.Swap(true) {
			a.waiting.report(Wait{Reason: f.Message, Limit: DatabasePatience})
		}
		if waitErr := again.Wait(ctx); errors.Is(waitErr, context.Canceled) {
			return nil, waitErr
		} else if waitErr != nil {
			return resp, err
		}
	}
}

func (a attempts) once() (*http.Response, error) {
	if a.upload {
		return a.try()
	}
	return a.waiting.during(a.try)
}

// rewinder returns a function that goes back to where body is now, to send it again. It is nil if that is impossible.
func rewinder(body io.Reader) func() error {
	if body == nil {
		return func() error { return nil }
	}
	seeker, ok := body.(io.Seeker)
	if !ok {
		return nil
	}
	begin, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil
	}
	return func() error {
		_, err := seeker.Seek(begin, io.SeekStart)
		return err
	}
}
