package fault_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

func TestHTTPStatus(t *testing.T) {
	t.Parallel()
	for code, status := range map[fault.Code]int{
		fault.Invalid: 400, fault.Unauthenticated: 401, fault.Forbidden: 403, fault.NotFound: 404, fault.WrongMethod: 405, fault.Conflict: 409,
		fault.TooLarge: 413, fault.RateLimited: 429, fault.Internal: 500, fault.Unavailable: 503,
	} {
		if got := code.HTTPStatus(); got != status {
			t.Errorf("%s: status %d, want %d", code, got, status)
		}
		if got := fault.FromHTTPStatus(status); got != code {
			t.Errorf("%d: %s, want %s", status, got, code)
		}
	}
	// Other servers' statuses: what the request is to blame for is invalid, and the rest internal.
	for status, want := range map[int]fault.Code{
		402: fault.Invalid, 418: fault.Invalid, 451: fault.Invalid, 499: fault.Invalid,
		200: fault.Internal, 302: fault.Internal, 399: fault.Internal, 501: fault.Internal, 502: fault.Internal, 504: fault.Internal,
	} {
		if got := fault.FromHTTPStatus(status); got != want {
			t.Errorf("%d: %s, want %s", status, got, want)
		}
	}
}
