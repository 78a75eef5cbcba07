package sdk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
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

// waiting tells the user that requests wait for the database, once until one of them succeeds. A nil *waiting means that requests do not wait.
type waiting struct {
	tell func(reason string)
	told atomic.Bool
}

// attempts is one request, and how often it may be made.
type attempts struct {
	harmless bool // the request changes nothing
	waiting  *waiting
	try      func() (*http.Response, error)
}

// patience returns how long the request is repeated after it failed with err.
func (a attempts) patience(err error) time.Duration {
	f := fault.As(err)
	switch {
	case f == nil:
		return 0
	case f.Reason == fault.DatabaseUnreachable && a.waiting != nil && (a.harmless || f.Unchanged):
		return DatabasePatience
	case errors.Is(err, errGateway) && a.harmless:
		return gatewayPatience
	}
	return 0
}

// run makes the request, and repeats it while that may help: while a proxy answers that it reached no server, or while the server says that
// its database is not reachable. A request that changes something is repeated only if the server says that it did not. run returns
// the last answer.
func (a attempts) run(ctx context.Context) (*http.Response, error) {
	again := backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second}
	for begin := time.Now(); ; {
		resp, err := a.try()
		if err == nil && a.waiting != nil {
			a.waiting.told.Store(false)
		}
		if err == nil || time.Since(begin) >= a.patience(err) {
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
