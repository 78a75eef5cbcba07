package sdk

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// html is the answer of a proxy.
func html(status int) error {
	return DecodeError(status, []byte("<html>"), "https://coder.example.com")
}

// TestRepeated checks how requests meet the answers of a load balancer one of whose servers has just died, and of a server whose database is
// away.
func TestRepeated(t *testing.T) {
	t.Parallel()
	ours := func(body string) error { return DecodeError(http.StatusServiceUnavailable, []byte(body), "") }
	words := ours(`{"message":"The database is not reachable."}`)
	away := ours(`{"message":"The database is not reachable.","reason":"database_unreachable"}`)
	unchanged := ours(`{"message":"The database is not reachable.","reason":"database_unreachable","unchanged":true}`)
	cut := Unreachable(t.Context(), "https://coder.example.com", io.EOF)
	cut2 := Unreachable(t.Context(), "https://coder.example.com", errors.New("http2: client connection lost"))
	refused := Unreachable(t.Context(), "https://coder.example.com", syscall.ECONNREFUSED)
	const read, change, create = 0, 1, 2
	for name, c := range map[string]struct {
		kind     int
		answers  []error // the last one repeats
		tries    int     // 0: until patience ends
		patience time.Duration
		ok       bool
		told     int // how often the user is told
	}{
		"a read passes over dead servers":       {read, []error{html(502), html(503), html(504), nil}, 4, 0, true, 0},
		"a change is not repeated":              {change, []error{html(502), nil}, 1, 0, false, 0},
		"a server's own answer is the answer":   {read, []error{words, nil}, 1, 0, false, 0},
		"a read gives up":                       {read, []error{html(502)}, 0, gatewayPatience, false, 0},
		"other statuses of a proxy are answers": {read, []error{html(500), nil}, 1, 0, false, 0},

		"a read waits for the database":                 {read, []error{away, away, unchanged, nil}, 4, 0, true, 1},
		"a change that was refused waits, too":          {change, []error{unchanged, unchanged, nil}, 3, 0, true, 1},
		"a change that may have been made does not":     {change, []error{away, nil}, 1, 0, false, 0},
		"nor one whose repetition may have been made":   {change, []error{unchanged, away, nil}, 2, 0, false, 1},
		"the database stays away":                       {read, []error{away}, 0, DatabasePatience, false, 1},
		"for a change, too":                             {change, []error{unchanged}, 0, DatabasePatience, false, 1},
		"another failure while it waits is the answer":  {read, []error{away, html(500)}, 2, 0, false, 1},
		"a dead server and then the database, in words": {read, []error{html(502), away, nil}, 3, 0, true, 1},

		"a creation passes over dead servers":              {create, []error{html(502), html(504), nil}, 3, 0, true, 0},
		"a creation whose connection was cut":              {create, []error{cut, refused, html(503), nil}, 4, 0, true, 0},
		"a creation whose connection was cut, with HTTP/2": {create, []error{cut2, refused, nil}, 3, 0, true, 0},
		"a read, too":         {read, []error{cut, refused, nil}, 3, 0, true, 0},
		"a change, not":       {change, []error{cut, nil}, 1, 0, false, 0},
		"a creation gives up": {create, []error{cut, refused}, 0, gatewayPatience, false, 0},
		"nothing is there":    {create, []error{refused, nil}, 1, 0, false, 0},
		"a creation that may have been made is made once": {create, []error{away, unchanged, nil}, 3, 0, true, 1},
		"a creation that was refused":                     {create, []error{ours(`{"message":"taken"}`), nil}, 1, 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, begin := 0, time.Now()
				var told []string
				_, err := attempts{
					harmless: c.kind == read,
					keyed:    c.kind == create,
					waiting:  &waiting{report: func(w Wait) { told = append(told, w.Reason) }},
					try: func() (*http.Response, error) {
						tries++
						return nil, c.answers[min(tries, len(c.answers))-1]
					},
				}.run(t.Context())
				if (err == nil) != c.ok || c.tries != 0 && tries != c.tries {
					t.Errorf("%d tries: %v", tries, err)
				}
				if took := time.Since(begin); c.tries == 0 && (took < c.patience || took > c.patience+2*time.Second) {
					t.Errorf("gave up after %s", took)
				}
				if len(told) != c.told || c.told > 0 && told[0] != "The database is not reachable." {
					t.Errorf("told %q", told)
				}
			})
		})
	}
	ended, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := attempts{harmless: true, try: func() (*http.Response, error) { return nil, html(502) }}.run(ended)
	if f := fault.As(err); f == nil || f.Code != fault.Unavailable || !strings.Contains(f.Detail, "a server behind it has probably just ended: try again") {
		t.Errorf("got %v", err)
	}
}

// TestInterrupted checks that a request that is repeated ends at once, as interrupted, when the user interrupts the command.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := &fault.Error{Code: fault.Unavailable, Message: "The database is not reachable.", Reason: fault.DatabaseUnreachable}
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, interrupt)
		begin := time.Now()
		try := func() (*http.Response, error) { return nil, away }
		all := attempts{harmless: true, waiting: &waiting{report: func(Wait) {}}, try: try}
		if _, err := all.run(ctx); !errors.Is(err, context.Canceled) || time.Since(begin) != 3*time.Second {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
	})
}

// TestSilentServer checks that the user is told of a server that does not answer, once and before 5 s have passed, unless it is slow because of what
// it is sent.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		begin := time.Now()
		w := &waiting{report: func(w Wait) {
			if told = append(told, time.Since(begin)); !w.Slow || w.Reason != "The server has not answered for 4s." || w.Limit != callTimeout {
				t.Errorf("told %+v", w)
			}
		}}
		silent := func(d time.Duration, upload bool) {
			t.Helper()
			_, err := attempts{upload: upload, waiting: w, try: func() (*http.Response, error) {
				time.Sleep(d)
				return nil, html(500)
			}}.run(t.Context())
			if err == nil {
				t.Error("got no error")
			}
			synctest.Wait()
		}
		silent(3*time.Second, false)
		silent(time.Minute, true)
		if len(told) != 0 {
			t.Errorf("told after %s", told)
		}
		begin = time.Now()
		silent(time.Minute, false)
		silent(time.Minute, false)
		if len(told) != 1 || told[0] > 5*time.Second {
			t.Errorf("told after %s, want once", told)
		}
		w.succeeded()
		silent(time.Minute, false)
		if len(told) != 2 {
			t.Errorf("told %d times, want once more after an answer", len(told))
		}
	})
}

// TestToldOncePerOutage checks that several requests that wait for one outage say so once, and those of the next outage once more.
func TestToldOncePerOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		var down atomic.Bool
		w := &waiting{report: func(Wait) { told++ }}
		away := &fault.Error{Code: fault.Unavailable, Message: "The database is not reachable.", Reason: fault.DatabaseUnreachable}
		request := func() error {
			_, err := attempts{harmless: true, waiting: w, try: func() (*http.Response, error) {
				if down.Load() {
					return nil, away
				}
				return nil, nil
			}}.run(t.Context())
			return err
		}
		for want := 1; want <= 2; want++ {
			down.Store(true)
			ended := make(chan error, 3)
			for range cap(ended) {
				go func() { ended <- request() }()
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			down.Store(false)
			for range cap(ended) {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
			if told != want {
				t.Errorf("after outage %d the user was told %d times", want, told)
			}
		}
		alone := attempts{harmless: true, try: func() (*http.Response, error) { return nil, away }}
		begin := time.Now()
		if _, err := alone.run(t.Context()); !errors.Is(err, away) || time.Since(begin) > 0 {
			t.Errorf("a client that does not wait got %v after %s", err, time.Since(begin))
		}
	})
}
