package provisionerd_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd"
)

func runOptions(t *testing.T, handler http.HandlerFunc) provisionerd.RunOptions {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return provisionerd.RunOptions{
		Options: provisionerd.Options{StateDir: t.TempDir(), Executor: executor(nil)},
		URL:     u,
		Header:  func(context.Context) (http.Header, error) { return http.Header{}, nil },
	}
}

// TestWrongCredential checks that a wrong credential ends the program with the server's message, after one attempt.
func TestWrongCredential(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	opts := runOptions(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusUnauthorized)
		w.Write([]byte(`{"message":"The pre-shared key is wrong"}`))
	})
	err := provisionerd.Run(t.Context(), opts)
	if fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "The pre-shared key is wrong") {
		t.Errorf("run: %v", err)
	}
	if n := tries.Load(); n != 1 {
		t.Errorf("%d tries, want 1", n)
	}
}

// TestServerAway checks that the daemon waits for an unreachable server, and that the wait can be ended.
func TestServerAway(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts := runOptions(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		cancel()
	})
	if err := provisionerd.Run(ctx, opts); err != nil {
		t.Errorf("run: %v", err)
	}
}

func TestJoinNeedsServerAndCredential(t *testing.T) {
	t.Parallel()
	if _, err := provisionerd.Join(provisionerd.RunOptions{}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("join: %v", err)
	}
}
