package terminal

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/ptywire"
)

// A viewer that reconnects as soon as it has received the result gets a new shell, although the ended terminal is not removed yet.
func TestEndedShellIsReplaced(t *testing.T) {
	t.Parallel()
	h := New(Options{})
	defer h.Close()
	want := Start{Request: ptywire.Request{ID: uuid.New()}, Path: "/bin/sh", Args: []string{"sh", "-c", "read line"}, Env: os.Environ(), Directory: "/"}
	ended := &terminal{holder: h, over: &ptywire.End{}}
	h.terminals[want.ID] = ended

	ours, theirs := net.Pipe()
	defer ours.Close()
	shell, viewer, err := h.attach(want, theirs)
	if err != nil {
		t.Fatal(err)
	}
	if shell == ended {
		t.Error("the viewer sees the ended shell")
	}
	if h.terminals[want.ID] != shell {
		t.Error("the new shell is not kept")
	}
	done := make(chan error, 1)
	go func() { done <- shell.serve(viewer) }()
	go func() { _, _ = io.Copy(io.Discard, ours) }()
	h.Close()
	<-done
}
