package sdk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/internal/backoff"
	"github.com/codermesh/codermesh/internal/fault"
)

const (
	// gatewayPatience is how long requests that may be repeated are repeated while a proxy answers that it reached no server. A load balancer that
	// asks /healthz has taken a server that died out of service by then.
	gatewayPatience = 10 * time.Second
	// DatabasePatience is how long a client with Options.Waiting repeats requests while the server's database is not reachable. A standby is
	// usually promoted in that time.
	DatabasePatience = 30 * time.Second
)

// errGateway is the cause of faults for answers of 502, 503 and 504 that a proxy gave in a server's place.
var errGateway = errors.New("a proxy reached no server")

// errUnreachable is a cause of faults for requests without an answer.
var errUnreachable = errors.New("no answer")

// waiting tells the user that requests wait for the database, once until one of them succeeds. A nil *waiting means that requests do not wait.
type waiting struct {
	tell func(reason string)
	told atomic.Bool
}

// attempts is one request, and how often it may be made.
type attempts struct {
	harmless bool // the request changes nothing
	keyed    bool // the server recognizes by a key that the request is repeated
	waiting  *waiting
	try      func() (*http.Response, error)
}

// patience returns how long the request is repeated after it failed with err. cut says that an earlier attempt ended without an answer.
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
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// run makes the request, and repeats it while that may help: while a proxy answers that it reached no server, after a connection was cut, or while
// the server says that its database is not reachable. A request that changes something is repeated only if it has a key by which the server
// recognizes it, or if the server says that it changed nothing. run returns the last answer.
func (a attempts) run(ctx context.Context) (*http.Response, error) {
	again := backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second}
	cut := false
	for begin := time.Now(); ; {
		resp, err := a.try()
		if err == nil && a.waiting != nil {
			a.waiting.told.Store(false)
		}
		cut = cut || isCut(err)
		if err == nil || time.Since(begin) >= a.patience(err, cut) {
			return resp, err
		}
		if f := fault.As(err); f.Reason == fault.DatabaseUnreachable && !a.waiting.told.Swap(true) {
			a.waiting.tell(f.Message)
		}
		if again.Wait(ctx) != nil {
			return resp, err
		}
	}
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
