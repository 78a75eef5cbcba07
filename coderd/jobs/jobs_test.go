package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/jobs"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/provisionerd"
	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
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

func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var ids []uuid.UUID
	for i := range 6 {
		err := w.db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			row, err := w.service.Insert(t.Context(), q, jobs.NewJob{Kind: kind, Org: w.org, Initiator: w.user, FileID: w.file, Priority: int16(i % 2)})
			ids = append(ids, row.ID)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ran := make(chan uuid.UUID, 6)
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		ran <- uuid.UUID(run.Offer.GetJobId())
		return succeeded("")
	}}, nil)
	var got []uuid.UUID
	for range 6 {
		got = append(got, <-ran)
	}
	want := []uuid.UUID{ids[0], ids[2], ids[4], ids[1], ids[3], ids[5]}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// The stream is cut again and again while a job runs, and the server is away for a while: nothing is lost, doubled or out of
// order.
func TestEventsExactlyOnceInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	step := make(chan struct{})
	var want []string
	p := w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		for i := range 60 {
			<-step
			say(run, fmt.Sprint(i))
			if i%5 == 0 {
				run.Sink.Checkpoint(fmt.Append(nil, i))
			}
		}
		return succeeded("end")
	}}, nil)
	id := w.insert(nil)
	for i := range 60 {
		step <- struct{}{}
		want = append(want, fmt.Sprint(i))
		if i%5 == 0 {
			want = append(want, fmt.Sprint("checkpoint ", i))
		}
		switch {
		case i == 20:
			w.stopServer()
		case i == 40:
			w.startServer()
		case i%7 == 0:
			p.link.cut()
		}
	}
	w.await(id, "succeeded")
	if diff := cmp.Diff(append(want, "result end"), w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if n := p.exec.runs(); n != 1 {
		t.Errorf("the job ran %d times", n)
	}
}

func TestResultDeliveredAfterServerWasAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began, gate := make(chan struct{}), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		close(began)
		<-gate
		return succeeded("s")
	}}, nil)
	id := w.insert(nil)
	<-began
	w.stopServer()
	close(gate)
	w.eventually("the job is over", func() bool { p.exec.mu.Lock(); defer p.exec.mu.Unlock(); return p.exec.active == 0 }, nil)
	// The daemon is stopped too, with the result undelivered.
	p.kill()
	w.startServer()
	w.startIn(p.as, p.dir, nil, nil)
	w.await(id, "succeeded")
	if diff := cmp.Diff([]string{"result s"}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestKilledDaemonDeliversWhatIsLeft(t *testing.T) {
	t.Parallel()
	for name, recovered := range map[string]string{"executor finds newer state": "s9", "only the checkpoint": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			began := make(chan struct{})
			p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
				run.Sink.Checkpoint([]byte("s1"))
				close(began)
				<-stop
				return succeeded("never seen")
			}}, nil)
			id := w.insert(nil)
			<-began
			p.crash(&executor{recover: func(job uuid.UUID, epoch uint64) ([]byte, error) {
				if job != id || epoch != 1 {
					return nil, fmt.Errorf("asked for %s/%d", job, epoch)
				}
				if recovered == "" {
					return nil, errors.New("nothing there")
				}
				return []byte(recovered), nil
			}})
			row := w.await(id, "failed")
			if !strings.Contains(row.Error, "killed while it was starting the workspace") {
				t.Errorf("error is %q", row.Error)
			}
			want := []string{"checkpoint s1", "result s1"}
			if recovered != "" {
				want[1] = "result " + recovered
			}
			if diff := cmp.Diff(want, w.lines(id)); diff != "" {
				t.Errorf("recorded (-want +got):\n%s", diff)
			}
		})
	}
}

// A daemon that comes back without its disk: the job that had begun fails at once, one that had not waits again.
func TestDaemonLostItsDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began := make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
		run.Sink.Checkpoint([]byte("s1"))
		close(began)
		<-stop
		return succeeded("")
	}}, nil)
	id := w.insert(nil)
	<-began
	w.eventually("the checkpoint is stored", func() bool { return len(w.lines(id)) == 1 }, nil)
	p.link.block(true)
	w.startIn(p.as, t.TempDir(), nil, nil)
	row := w.await(id, "failed")
	if !strings.Contains(row.Error, "no longer knows this job") {
		t.Errorf("error is %q", row.Error)
	}
	if diff := cmp.Diff([]string{"checkpoint s1", "result "}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

func TestGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Deps) { d.Grace = 300 * time.Millisecond })
	began, gate := make(chan struct{}, 1), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		run.Sink.Checkpoint([]byte("s1"))
		began <- struct{}{}
		<-gate
		return succeeded("too late")
	}}, nil)
	id := w.insert(nil)
	<-began
	w.eventually("the checkpoint is stored", func() bool { return len(w.lines(id)) == 1 }, nil)
	p.link.block(true)
	row := w.await(id, "failed")
	if !strings.Contains(row.Error, "not seen for 300ms") {
		t.Errorf("error is %q", row.Error)
	}
	// The daemon comes back with a result: it is refused, and the daemon serves on.
	close(gate)
	p.link.block(false)
	next := w.insert(nil)
	w.await(next, "succeeded")
	if diff := cmp.Diff([]string{"checkpoint s1", "result "}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// A server that was restarted counts the grace from its start.
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
	w.deps.Grace = 200 * time.Millisecond
	w.startServer()
	w.await(id, "failed")
}

// A daemon that does not hear its server for the grace period stops its job by itself: somebody else may have it by then.
func TestDaemonFencesItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Deps) { d.Grace, d.Fence = 500*time.Millisecond, time.Minute })
	began, stopped := make(chan struct{}), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
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
	case <-time.After(hang):
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

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		id := w.insert(nil)
		if err := w.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.await(id, "canceled")
		p := w.start("one", nil, nil, nil)
		w.await(w.insert(nil), "succeeded")
		if n := p.exec.runs(); n != 1 {
			t.Errorf("%d jobs ran, want 1", n)
		}
		if err := w.service.Cancel(t.Context(), id); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("second cancel: %v, want a conflict", err)
		}
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
			close(began)
			<-stop
			return failed("half", "interrupted")
		}}, nil)
		id := w.insert(nil)
		<-began
		if err := w.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.await(id, "canceled")
		if diff := cmp.Diff([]string{"result half"}, w.lines(id)); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
			close(began)
			<-stop
			return succeeded("all")
		}}, nil)
		id := w.insert(nil)
		<-began
		if err := w.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.await(id, "succeeded")
	})
	t.Run("forced", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(d *jobs.Deps) { d.CancelGrace = 100 * time.Millisecond })
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(ctx context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
			close(began)
			<-ctx.Done()
			return failed("half", "killed")
		}}, nil)
		id := w.insert(nil)
		<-began
		if err := w.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		w.await(id, "canceled")
	})
	t.Run("while the daemon is away", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		began := make(chan struct{})
		p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
			close(began)
			<-stop
			return failed("half", "interrupted")
		}}, nil)
		id := w.insert(nil)
		<-began
		p.link.block(true)
		if err := w.service.Cancel(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		p.link.block(false)
		w.await(id, "canceled")
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began, gate := make(chan struct{}), make(chan struct{})
	p := w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		close(began)
		<-gate
		return succeeded("s")
	}}, nil)
	id := w.insert(nil)
	<-began
	drained := make(chan error, 1)
	go func() { drained <- p.Stop(context.Background()) }()
	next := w.insert(nil)
	close(gate)
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	w.await(id, "succeeded")
	if row := w.row(next); row.Status != "pending" {
		t.Errorf("the next job is %s, want pending", row.Status)
	}
	w.start("two", nil, nil, nil)
	w.await(next, "succeeded")
}

func TestSecondStopInterrupts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	began := make(chan struct{})
	p := w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		close(began)
		<-stop
		return failed("half", "interrupted")
	}}, nil)
	id := w.insert(nil)
	<-began
	drained := make(chan error, 1)
	go func() { drained <- p.Stop(context.Background()) }()
	w.eventually("the first stop drains", func() bool { return p.Draining() }, nil)
	if err := errors.Join(p.Stop(context.Background()), <-drained); err != nil {
		t.Errorf("stop: %v", err)
	}
	row := w.await(id, "failed")
	if !strings.Contains(row.Error, "told to stop") {
		t.Errorf("error is %q", row.Error)
	}
}

// A flood is bounded, its end is said, and the errors at its end are kept.
func TestLogFlood(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	line := strings.Repeat("x", 10_000)
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		say(run, strings.Repeat("y", 1<<20))
		for range 4000 {
			say(run, line)
		}
		run.Sink.Log(&provisionerpb.LogLine{Level: provisionerpb.LogLevel_LOG_LEVEL_ERROR, Stage: "test", Output: "why it failed"})
		return failed("", "flooded")
	}}, nil)
	id := w.insert(nil)
	row := w.await(id, "failed")
	if !row.LogOverflowed || row.LogLength > 17<<20 {
		t.Errorf("overflowed %t, length %d", row.LogOverflowed, row.LogLength)
	}
	lines := w.lines(id)
	if len(lines[0]) > 40_000 || !strings.Contains(lines[0], "[cut: 1048576 bytes]") {
		t.Errorf("the long line has %d bytes and ends with %q", len(lines[0]), lines[0][len(lines[0])-40:])
	}
	said := 0
	for _, l := range lines {
		if strings.Contains(l, "only errors are kept") {
			said++
		}
	}
	if n := len(lines); said != 1 || lines[n-2] != "why it failed" {
		t.Errorf("said %d times that the log is full; the end is %q", said, lines[n-2:])
	}
}

// What cannot be stored does not hang the job.
func TestHandlerFails(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, status, err string
		lines             []string
	}{
		{"offer", "failed", "could not prepare the job", []string{"result "}},
		{"checkpoint s1", "succeeded", "", []string{"The server could not store what the provisioner reported; its log says why.", "result s2"}},
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
	w.eventually("nobody is online", func() bool {
		shown, err := w.service.JSON(t.Context(), w.db.Queries, id)
		if err != nil {
			t.Fatal(err)
		}
		return shown[id].WaitingReason == "No provisioner is online."
	}, nil)
}

// Two replicas: a daemon that is connected to one is not lost for the other, and a cancel finds it.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Deps) { d.Grace = 200 * time.Millisecond })
	run := func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
		run.Sink.Checkpoint([]byte("s"))
		<-stop
		return failed("s", "interrupted")
	}
	here := w.start("here", map[string]string{"pool": "here"}, &executor{run: run}, nil)
	lost := w.start("lost", map[string]string{"pool": "lost"}, &executor{run: run}, nil)
	a, b := w.insert(here.as.Tags), w.insert(lost.as.Tags)
	w.eventually("both run", func() bool { return len(w.lines(a))+len(w.lines(b)) == 2 }, nil)

	other := jobs.New(w.deps)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	w.eventually("the daemons are known to be online", func() bool {
		shown, err := other.Matched(t.Context(), w.db.Queries, a, b)
		return err == nil && shown[a].Available == 1 && shown[b].Available == 1
	}, nil)
	lost.link.block(true)
	w.await(b, "failed") // its time ends after the one that the other replica gave job a
	if row := w.row(a); row.Status != "running" {
		t.Fatalf("the job of the connected daemon is %s: %s", row.Status, row.Error)
	}
	if err := other.Cancel(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	w.await(a, "canceled")
}
