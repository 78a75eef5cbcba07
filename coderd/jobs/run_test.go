package jobs_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestJobRuns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var source []byte
	w.start("one", nil, &executor{run: func(ctx context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		r, err := run.Source(ctx)
		if err != nil {
			return failed("", err.Error())
		}
		defer r.Close()
		if source, err = io.ReadAll(r); err != nil {
			return failed("", err.Error())
		}
		say(run, "a")
		run.Sink.Checkpoint([]byte("s1"))
		say(run, "b\x00\xff")
		run.Sink.Resources([]*provisionerpb.Resource{{Name: "r"}})
		run.Sink.Checkpoint([]byte("s2"))
		run.Sink.Checkpoint([]byte("s2"))
		return succeeded("s3")
	}}, nil)
	id := w.insert(nil)
	row := w.await(id, "succeeded")
	want := []string{"a", "checkpoint s1", "b\uFFFD\uFFFD", "resources 1", "checkpoint s2", "result s3"}
	if diff := cmp.Diff(want, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if want := strings.Repeat("source ", 400_000); string(source) != want {
		t.Errorf("source has %d bytes, want %d", len(source), len(want))
	}
	if row.Epoch != 1 || row.StartedAt == nil || row.CompletedAt == nil {
		t.Errorf("epoch %d, started %v, completed %v", row.Epoch, row.StartedAt, row.CompletedAt)
	}
}

func TestFailedJobKeepsState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		return failed("half", "no quota")
	}}, nil)
	id := w.insert(nil)
	if row := w.await(id, "failed"); row.Error != "no quota" {
		t.Errorf("error is %q", row.Error)
	}
	if diff := cmp.Diff([]string{"result half"}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestPanickingExecutorFailsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	calls := 0
	w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		if calls++; calls == 1 {
			panic("oops")
		}
		return succeeded("")
	}}, nil)
	if row := w.await(w.insert(nil), "failed"); !strings.Contains(row.Error, "oops") {
		t.Errorf("error is %q", row.Error)
	}
	w.await(w.insert(nil), "succeeded")
}

func TestSlots(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gate := make(chan struct{})
	slots := make(chan int, 16)
	exec := &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		slots <- run.Slot
		<-gate
		return succeeded("")
	}}
	w.start("one", nil, exec, func(o *provisionerd.Options) { o.Slots = 3 })
	var ids []uuid.UUID
	for range 7 {
		ids = append(ids, w.insert(nil))
	}
	seen := map[int]bool{}
	for range 3 {
		seen[<-slots] = true
	}
	if len(seen) != 3 {
		t.Errorf("slots in use: %v", seen)
	}
	close(gate)
	for _, id := range ids {
		w.await(id, "succeeded")
	}
	if exec.most != 3 {
		t.Errorf("%d jobs at once, want 3", exec.most)
	}
}

// TestHandlerFails checks that a job whose result cannot be stored does not hang.
func TestHandlerFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, status, err string
		lines             []string
	}{
		{"offer", "failed", "could not prepare the job", []string{"result "}},
		{"checkpoint s1", "succeeded", "", []string{"The server could not store the provisioner's report. Its log has the cause.", "result s2"}},
		{"result s2", "failed", "could not store the job's result", []string{"checkpoint s1", "result "}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			w.failing = func(what string) error {
				if what == c.what {
					return errors.New("made to fail")
				}
				return nil
			}
			w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
				run.Sink.Checkpoint([]byte("s1"))
				return succeeded("s2")
			}}, nil)
			id := w.insert(nil)
			row := w.await(id, c.status)
			if !strings.Contains(row.Error, c.err) || c.err == "" && row.Error != "" {
				t.Errorf("error is %q, want %q", row.Error, c.err)
			}
			if diff := cmp.Diff(c.lines, w.lines(id)); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnknownCallerIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	p := w.start("one", nil, nil, nil)
	<-p.Started()
	w.mu.Lock()
	delete(w.daemons, p.link.from)
	w.mu.Unlock()
	p.link.cut()
	id := w.insert(nil)
	testwait.Until(w.T, "no daemon is online", func() error {
		shown, err := w.service.JSON(t.Context(), w.DB.Queries, id)
		if err != nil {
			t.Fatal(err)
		}
		reason := shown[id].WaitingReason
		return testwait.Unless(strings.HasPrefix(reason, "No provisioner is online. one could run it, but has been offline since "), "it waits because of %q", reason)
	})
}

// TestTwoReplicas checks that a replica does not give up a daemon that is connected to another replica, and that a cancel
// reaches the daemon.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	// No heartbeat is due, so none is late on a busy machine.
	w := newWorld(t, func(d *jobs.Options) { d.Grace, d.Heartbeat = 200*time.Millisecond, time.Hour })
	// These daemons continue their jobs when the server is slow to answer.
	tags, lostTags := map[string]string{"pool": "here"}, map[string]string{"pool": "lost"}
	here := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "here", Tags: tags})
	lost := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "lost", Tags: lostTags})
	a, b := w.insert(tags), w.insert(lostTags)
	offer := here.accept()
	lost.accept()

	other := jobs.New(w.opts)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	testwait.Until(w.T, "the daemons are known to be online", func() error {
		shown, err := other.Matched(t.Context(), w.DB.Queries, a, b)
		return testwait.Unless(err == nil && shown[a].Available == 1 && shown[b].Available == 1, "matched %+v and %+v (%v)", shown[a], shown[b], err)
	})
	if err := lost.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	w.await(b, "failed") // its deadline is later than the one that the other replica gave job a
	if row := w.row(a); row.Status != "running" {
		t.Fatalf("the job of the connected daemon is %s: %s", row.Status, row.Error)
	}
	if err := other.Cancel(t.Context(), a, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		t.Fatal(err)
	}
	next[*provisionerpb.ServerMessage_Cancel](here)
	here.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: &provisionerpb.Result{Canceled: true, Error: "interrupted"}}})
	w.await(a, "canceled")
}
