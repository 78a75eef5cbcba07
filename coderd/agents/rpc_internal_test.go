package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/uuid"
)

// TestGivenUpCallsAreNoErrors checks that a call whose agent no longer waits is not logged as an error: when a server stops, every agent
// with a call in progress gives up. An error that the server causes is logged.
func TestGivenUpCallsAreNoErrors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	r := &rpc{Service: &Service{log: slog.New(slog.NewTextHandler(&log, nil))}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.fail(ended, uuid.New(), "read apps", fmt.Errorf("query: %w", ended.Err())); connect.CodeOf(err) != connect.CodeCanceled || log.Len() > 0 {
		t.Errorf("the agent gave up: %v, logged %q; want %s and no log", err, &log, connect.CodeCanceled)
	}
	for name, err := range map[string]error{"the database fails": errors.New("broken"), "a query is canceled": context.Canceled} {
		log.Reset()
		if err := r.fail(t.Context(), uuid.New(), "read apps", err); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%s: %v, logged %q; want %s and an error", name, err, &log, connect.CodeUnavailable)
		}
	}
}
