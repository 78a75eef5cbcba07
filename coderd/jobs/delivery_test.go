package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
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

// TestEventsExactlyOnceInOrder cuts the stream repeatedly while a job runs, and stops the server for a while: no event is
// lost, duplicated or out of order.
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
	testwait.Until(w.T, "the job is over", func() error {
		p.exec.mu.Lock()
		defer p.exec.mu.Unlock()
		return testwait.Unless(p.exec.active == 0, "%d jobs run", p.exec.active)
	})
	// The daemon is stopped too, with the result undelivered.
	p.kill()
	w.startServer()
	w.startIn(p.as, p.dir, nil, nil)
	w.await(id, "succeeded")
	if diff := cmp.Diff([]string{"result s"}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestServersAwayForLongerThanGrace checks what becomes of the builds of an external provisioner while all servers are
// away for longer than the grace period: it delivers the result of one that ended meanwhile, and stops one that has
// not, which ends with the reason and the state that it reached.
func TestServersAwayForLongerThanGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Options) { d.Grace = 500 * time.Millisecond })
	began, gate, ended := make(chan struct{}, 2), make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
		if first.CompareAndSwap(false, true) {
			began <- struct{}{}
			<-gate
			return succeeded("made")
		}
		began <- struct{}{}
		<-stop
		close(ended)
		return failed("reached", "interrupted")
	}}, func(o *provisionerd.Options) { o.Slots = 2 })
	short := w.insert(nil)
	<-began
	long := w.insert(nil)
	<-began
	w.stopServer()
	close(gate)
	testwait.For(w.T, "the provisioner stops the other job", ended)
	w.opts.Grace = time.Hour // from now on: a busy machine may let the provisioner come back late
	w.startServer()
	w.await(short, "succeeded")
	if row := w.await(long, "failed"); !strings.Contains(row.Error, "away for longer than 500ms") {
		t.Errorf("error is %q", row.Error)
	}
	for id, want := range map[uuid.UUID]string{short: "result made", long: "result reached"} {
		if diff := cmp.Diff([]string{want}, w.lines(id)); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	}
}

// TestAbsentServersAreNoAbsentProvisioner checks that the time in which no server was there does not count as an
// external provisioner's absence: nothing says that it is offline before it could connect again, and its job, which may
// have ended well meanwhile, is not given up.
func TestAbsentServersAreNoAbsentProvisioner(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Options) { d.Heartbeat, d.Grace = time.Hour, 100*time.Hour })
	run, canceled := w.begin(t, "external", false), w.begin(t, "canceled", false)
	w.stopServer()
	for _, ends := range []running{run, canceled} {
		for range ends.raw.messages { // until the stream ends
		}
	}
	w.Exec("UPDATE provisioner_daemons SET online = false, last_seen_at = now() - interval '150 hours'")
	w.startServer()
	look := func() {
		t.Helper()
		if err := w.service.LookForAbsences(t.Context()); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "the leases are settled", func() error { return testwait.Unless(w.service.Due() == 0, "some are due") })
		if row := w.row(run.id); row.Status != "running" {
			t.Fatalf("the job is %s: %s", row.Status, row.Error)
		}
	}
	w.service.HearFor(0)
	look()
	if lines := w.told(run.id); len(lines) > 0 || w.reason(run.id) != "" {
		t.Errorf("the provisioner had no time to return, and the log says %q, the job %q", lines, w.reason(run.id))
	}
	// Nothing is known of the provisioner: it interrupts the job when it is back, and reports how that ended.
	if err := w.service.Cancel(t.Context(), canceled.id, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		t.Fatal(err)
	}
	if row := w.row(canceled.id); row.Status != "canceling" {
		t.Errorf("the canceled job is %s: %s", row.Status, row.Error)
	}
	next[*provisionerpb.ServerMessage_Cancel](w.raw(t, canceled.as, canceled.lease()))

	w.service.HearFor(time.Minute)
	look()
	w.absent(run)

	back := w.raw(t, run.as, run.lease())
	if acks := next[*provisionerpb.ServerMessage_Welcome](back).Welcome.GetAcks(); len(acks) != 1 {
		t.Fatalf("the welcome acknowledges %v", acks)
	}
	back.seq = 1
	back.event(run.offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s2")}})
	w.await(run.id, "succeeded")
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

// TestDaemonLostItsDisk checks that after a daemon comes back without its disk, the job that had begun fails at once, and
// the one that had not begun waits again.
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
	testwait.Until(w.T, "the checkpoint is stored", func() error { return testwait.Len(w.lines(id), 1) })
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
	testwait.Until(w.T, "the first stop drains", func() error { return testwait.Unless(p.Draining(), "it does not drain") })
	if err := errors.Join(p.Stop(context.Background()), <-drained); err != nil {
		t.Errorf("stop: %v", err)
	}
	row := w.await(id, "failed")
	if !strings.Contains(row.Error, "told to stop") {
		t.Errorf("error is %q", row.Error)
	}
}

// TestLogFlood checks that the server bounds a flood of lines, logs that it did so, and keeps the errors at the end.
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
