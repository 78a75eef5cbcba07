package echo_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

type sink struct {
	events []string
	on     func(string)
}

func (s *sink) add(event string) {
	s.events = append(s.events, event)
	if s.on != nil {
		s.on(event)
	}
}
func (s *sink) Log(line *provisionerpb.LogLine) {
	s.add("log " + line.GetStage() + ": " + line.GetOutput())
}
func (s *sink) Change(c *provisionerpb.Change) { s.add("change " + c.GetAddress()) }
func (s *sink) Checkpoint(state []byte)        { s.add("checkpoint " + string(state)) }
func (s *sink) Resources(r []*provisionerpb.Resource) {
	s.add("resources " + r[0].GetName() + " " + r[0].GetAgents()[0].GetName())
}

func run(t *testing.T, script echo.Script, stop chan struct{}, s *sink, transition provisionerpb.Transition) *provisionerpb.Result {
	t.Helper()
	archive, err := script.Archive()
	if err != nil {
		t.Fatal(err)
	}
	var e echo.Executor
	return e.Run(t.Context(), stop, job.Run{
		Offer: &provisionerpb.Offer{Job: &provisionerpb.Offer_WorkspaceBuild{
			WorkspaceBuild: &provisionerpb.WorkspaceBuild{Transition: transition, State: []byte("before")},
		}},
		Source: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive)), nil },
		Sink:   s,
	})
}

func TestScript(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "go")
	s := &sink{on: func(event string) {
		if event == "log Starting: waiting" {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}}
	result := run(t, echo.Script{"start": {
		{Log: "waiting", Stage: "Starting"},
		{WaitFile: file},
		{Checkpoint: "state 1"},
		{Resources: []json.RawMessage{[]byte(`{"name":"vm","agents":[{"name":"main"}]}`)}},
		{Result: []byte(`{"workspaceBuild":{"state":"c3RhdGUgMg=="}}`)},
	}}, make(chan struct{}), s, provisionerpb.Transition_TRANSITION_START)
	if got := string(result.GetWorkspaceBuild().GetState()); result.GetError() != "" || got != "state 2" {
		t.Errorf("state %q, error %q", got, result.GetError())
	}
	want := []string{"log Starting: waiting", "checkpoint state 1", "resources vm main"}
	if diff := cmp.Diff(want, s.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestDefaultKeepsState(t *testing.T) {
	t.Parallel()
	result := run(t, echo.Script{}, make(chan struct{}), &sink{}, provisionerpb.Transition_TRANSITION_STOP)
	if got := string(result.GetWorkspaceBuild().GetState()); result.GetError() != "" || got != "before" {
		t.Errorf("state %q, error %q", got, result.GetError())
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	s := &sink{on: func(string) { close(stop) }}
	result := run(t, echo.Script{"delete": {{Log: "x"}, {WaitStop: true}}}, stop, s, provisionerpb.Transition_TRANSITION_DELETE)
	if !result.GetCanceled() || result.GetErrorCode() != "CANCELED" || string(result.GetWorkspaceBuild().GetState()) != "before" {
		t.Errorf("result %v", result)
	}
}

func TestRecover(t *testing.T) {
	t.Parallel()
	var e echo.Executor
	id := [16]byte{1}
	e.Leave(id, 7, []byte("left"))
	for _, want := range []string{"left", ""} {
		if left, err := e.Recover(t.Context(), id, 7, job.Known{}); err != nil || string(left.State) != want {
			t.Errorf("Recover: %q, %v; want %q", left.State, err, want)
		}
	}
}
