package sdk

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/internal/fault"
)

// TestRepeatedAtAGateway checks how requests meet the answers of a load balancer one of whose servers has just died.
func TestRepeatedAtAGateway(t *testing.T) {
	t.Parallel()
	html := func(status int) error { return DecodeError(status, []byte("<html>"), "https://coder.example.com") }
	ours := DecodeError(http.StatusServiceUnavailable, []byte(`{"message":"The database is not reachable."}`), "")
	for name, c := range map[string]struct {
		method  string
		answers []error // the last one repeats
		tries   int     // 0: until patience ends
		ok      bool
	}{
		"a read passes over dead servers":       {http.MethodGet, []error{html(502), html(503), html(504), nil}, 4, true},
		"a change is not repeated":              {http.MethodPost, []error{html(502), nil}, 1, false},
		"a server's own answer is the answer":   {http.MethodGet, []error{ours, nil}, 1, false},
		"a read gives up":                       {http.MethodGet, []error{html(502)}, 0, false},
		"other statuses of a proxy are answers": {http.MethodGet, []error{html(500), nil}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, begin := 0, time.Now()
				_, err := repeated(t.Context(), c.method, func() (*http.Response, error) {
					tries++
					return nil, c.answers[min(tries, len(c.answers))-1]
				})
				if (err == nil) != c.ok || c.tries != 0 && tries != c.tries {
					t.Errorf("%d tries: %v", tries, err)
				}
				if took := time.Since(begin); c.tries == 0 && (took < gatewayPatience || took > gatewayPatience+2*time.Second) {
					t.Errorf("gave up after %s", took)
				}
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := repeated(ctx, http.MethodGet, func() (*http.Response, error) { return nil, html(502) })
	if f := fault.As(err); f == nil || f.Code != fault.Unavailable || !strings.Contains(f.Detail, "a server behind it has probably just ended: try again") {
		t.Errorf("got %v", err)
	}
}
