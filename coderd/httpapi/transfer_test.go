package httpapi_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
)

// paced is an answer that notes when the request's body must arrive.
type paced struct {
	*httptest.ResponseRecorder
	until time.Time // zero: no deadline
}

func (p *paced) SetReadDeadline(t time.Time) error {
	p.until = t
	return nil
}

// pieces is a body that arrives in pieces and reports the deadline of each read.
type pieces struct {
	w     *paced
	left  []string
	waits []time.Duration // that each read allows
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.w.until.IsZero() {
		return 0, errors.New("a read without a deadline")
	}
	p.waits = append(p.waits, time.Until(p.w.until))
	if len(p.left) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b, p.left[0])
	p.left = p.left[1:]
	return n, nil
}

// TestTransferTakesAsLongAsItMoves checks that a transfer's body has a deadline only while it is read: what receives it may be slower than the
// client.
func TestTransferTakesAsLongAsItMoves(t *testing.T) {
	t.Parallel()
	w := &paced{ResponseRecorder: httptest.NewRecorder()}
	body := &pieces{w: w, left: []string{"one", "two"}}
	r := httptest.NewRequest(http.MethodPut, "/", body)
	r.ContentLength = 100
	httpapi.BoundBodies(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		httpapi.AllowTransfer(r, time.Hour)
		for _, want := range []string{"one", "two"} {
			if !w.until.IsZero() {
				t.Errorf("before %s: a deadline while nothing is read", want)
			}
			b := make([]byte, 10)
			if n, err := r.Body.Read(b); err != nil || string(b[:n]) != want {
				t.Errorf("got %q, %v, want %s", b[:n], err, want)
			}
		}
		_, err := io.ReadAll(r.Body)
		if f := httpapi.BodyFault(err); f == nil || !strings.Contains(f.Message, "in time") {
			t.Errorf("a body that pauses: %v", err)
		}
	}), time.Second).ServeHTTP(w, r)
	for i, wait := range body.waits {
		if wait < time.Minute { // of the hour, not of the second of other requests
			t.Errorf("read %d may wait for %s", i, wait)
		}
	}
}
