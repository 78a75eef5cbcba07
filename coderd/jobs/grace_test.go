package jobs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil) // a short grace period would let the daemon stop a job of a busy machine
	began, gate := make(chan struct{}, 1), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		run.Sink.Checkpoint([]byte("s1"))
		began <- struct{}{}
		<-gate
		return succeeded("too late")
	}}, nil)
	id := w.insert(nil)
	<-began
	testwait.Until(w.T, "the checkpoint is stored", func() error { return testwait.Len(w.lines(id), 1) })
	p.link.block(true)
	w.offlineFor(p.as.ID, 2*time.Minute)
	row := w.await(id, "failed")
	if !strings.Contains(row.Error, "offline for 1m0s") {
		t.Errorf("error is %q", row.Error)
	}
	// The daemon comes back with a result: the server refuses it, and the daemon continues to serve.
	close(gate)
	p.link.block(false)
	next := w.insert(nil)
	w.await(next, "succeeded")
	if diff := cmp.Diff([]string{"checkpoint s1", "result "}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestGraceAfterRestart checks that a server that was restarted counts the grace period from its start.
func TestGraceAfterRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began := make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		close(began)
		<-stop
		return succeeded("")
	}}, nil)
	id := w.insert(nil)
	<-began
	p.link.block(true)
	w.stopServer()
	w.opts.Grace = 200 * time.Millisecond
	w.startServer()
	w.await(id, "failed")
}

// TestDaemonFencesItself checks that a daemon that does not hear from its server for the grace period stops its job on its
// own: another daemon may have it by then.
func TestDaemonFencesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Options) { d.Grace, d.Fence = 500*time.Millisecond, time.Minute })
	began, stopped := make(chan struct{}), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		close(began)
		<-stop
		close(stopped)
		return failed("reached", "interrupted")
	}}, nil)
	id := w.insert(nil)
	<-began
	p.link.block(true)
	select {
	case <-stopped:
	case <-time.After(coderdtest.Patience):
		t.Fatal("the job was not stopped")
	}
	p.link.block(false)
	if row := w.await(id, "failed"); !strings.Contains(row.Error, "away for longer than 500ms") {
		t.Errorf("error is %q", row.Error)
	}
	if diff := cmp.Diff([]string{"result reached"}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}
