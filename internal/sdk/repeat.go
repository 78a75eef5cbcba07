package sdk

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/internal/backoff"
)

// gatewayPatience is how long requests that may be repeated are repeated while a proxy answers that it reached no server. A load balancer that
// asks /healthz has taken a server that died out of service by then.
const gatewayPatience = 10 * time.Second

// errGateway is the cause of faults for answers of 502, 503 and 504 that a proxy gave in a server's place.
var errGateway = errors.New("a proxy reached no server")

// repeated calls try until its answer is a server's own, for gatewayPatience at most, if requests of this method change nothing. It returns
// the last answer.
func repeated(ctx context.Context, method string, try func() (*http.Response, error)) (*http.Response, error) {
	again := backoff.Backoff{Min: 200 * time.Millisecond, Max: 2 * time.Second}
	for begin := time.Now(); ; {
		resp, err := try()
		if !errors.Is(err, errGateway) || method != http.MethodGet && method != http.MethodHead || time.Since(begin) >= gatewayPatience {
			return resp, err
		}
		if again.Wait(ctx) != nil {
			return resp, err
		}
	}
}
