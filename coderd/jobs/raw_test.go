package jobs_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb/provisionerpbconnect"
)

// raw is a daemon that sends what a test tells it to send, including what a correct daemon never would.
type raw struct {
	t        *testing.T
	stream   *connect.BidiStreamForClient[provisionerpb.DaemonMessage, provisionerpb.ServerMessage]
	messages chan *provisionerpb.ServerMessage // the server's messages except pongs
	seq      uint64
}

func (w *world) raw(t *testing.T, as jobs.Daemon, leases ...*provisionerpb.Lease) *raw {
	t.Helper()
	l := &link{w: w, from: w.register(as), conns: map[net.Conn]struct{}{}}
	client := coderdtest.RPCClient(t, func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) })
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &raw{t: t, messages: make(chan *provisionerpb.ServerMessage, 1024)}
	r.stream = provisionerpbconnect.NewProvisionerServiceClient(client, "http://server").Session(ctx)
	over := make(chan struct{})
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Hello{Hello: &provisionerpb.Hello{ProtocolVersion: 2, Version: "raw", Leases: leases}}})
	go func() {
		defer close(over)
		for {
			m, err := r.stream.Receive()
			if err != nil {
				close(r.messages)
				return
			}
			r.messages <- m
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = r.stream.CloseRequest() // its stream has ended already
		<-over
	})
	return r
}

func (r *raw) send(m *provisionerpb.DaemonMessage) {
	r.t.Helper()
	if err := r.stream.Send(m); err != nil {
		r.t.Fatalf("send: %v", err)
	}
}

// next returns the server's next message of a kind and skips others.
func next[T any](r *raw) T {
	r.t.Helper()
	for {
		select {
		case m, ok := <-r.messages:
			if !ok {
				r.t.Fatalf("the stream ended before a %T", *new(T))
			}
			if found, ok := m.GetMessage().(T); ok {
				return found
			}
		case <-time.After(coderdtest.Patience):
			r.t.Fatalf("no %T came", *new(T))
		}
	}
}

// accept takes the next job.
func (r *raw) accept() *provisionerpb.Offer {
	r.t.Helper()
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
	offer := next[*provisionerpb.ServerMessage_Offer](r).Offer
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Accept{Accept: &provisionerpb.Accept{JobId: offer.GetJobId(), Epoch: offer.GetEpoch()}}})
	next[*provisionerpb.ServerMessage_Ack](r)
	return offer
}

// event sends the next event of a job.
func (r *raw) event(offer *provisionerpb.Offer, e *provisionerpb.Event) {
	r.t.Helper()
	r.seq++
	e.JobId, e.Epoch, e.Seq = offer.GetJobId(), offer.GetEpoch(), r.seq
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Event{Event: e}})
}

// stored waits until the server has stored the events that were sent. It waits for each acknowledgement, not for all
// of them: how long many lines take depends on the machine.
func (r *raw) stored() {
	r.t.Helper()
	for done := false; !done; {
		done = next[*provisionerpb.ServerMessage_Ack](r).Ack.GetSeq() >= r.seq
	}
}

func checkpoint(state string) *provisionerpb.Event {
	return &provisionerpb.Event{Event: &provisionerpb.Event_Checkpoint{Checkpoint: &provisionerpb.Checkpoint{State: []byte(state)}}}
}

func logged(level provisionerpb.LogLevel, lines ...string) *provisionerpb.Event {
	batch := &provisionerpb.LogBatch{}
	for _, line := range lines {
		batch.Lines = append(batch.Lines, &provisionerpb.LogLine{Level: level, Stage: "test", Output: line})
	}
	return &provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: batch}}
}

// TestBulkLogsAreBounded: the server bounds a log whatever the daemon sends, notes that in the log, and the job continues.
func TestBulkLogsAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.insert(nil)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	offer := r.accept()
	info, bad := provisionerpb.LogLevel_LOG_LEVEL_INFO, provisionerpb.LogLevel_LOG_LEVEL_ERROR
	r.event(offer, logged(info, strings.Repeat("é", 512<<10)))
	var lines []string
	for range 1000 {
		lines = append(lines, strings.Repeat("x", 10_000))
	}
	for range 10 { // 100 MB
		r.event(offer, logged(info, lines...))
	}
	r.event(offer, logged(bad, "why it failed"))
	r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s")}})
	r.stored()
	row := w.await(id, "succeeded")
	if !row.LogOverflowed || row.LogLength > 17<<20 {
		t.Errorf("overflowed %t, length %d", row.LogOverflowed, row.LogLength)
	}
	got := w.lines(id)
	if len(got[0]) > 70_000 || !strings.HasSuffix(got[0], "… [cut: 1048576 bytes]") {
		t.Errorf("the long line has %d bytes and ends with %q", len(got[0]), got[0][len(got[0])-40:])
	}
	end := got[len(got)-3:]
	if diff := cmp.Diff([]string{"The log is longer than 16 MiB. From here on, only errors are kept.", "why it failed", "result s"}, end); diff != "" {
		t.Errorf("its end (-want +got):\n%s", diff)
	}
}

// TestBulkEmptyLinesAreBounded checks that lines without text fill a log too, and the reason why the job failed is still at
// its end.
func TestBulkEmptyLinesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.insert(nil)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	offer := r.accept()
	lines := make([]string, 50_000)
	for range 5 {
		r.event(offer, logged(provisionerpb.LogLevel_LOG_LEVEL_INFO, lines...))
	}
	r.event(offer, logged(provisionerpb.LogLevel_LOG_LEVEL_ERROR, "why it failed"))
	r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s")}})
	r.stored()
	row := w.await(id, "succeeded")
	got := w.lines(id)
	if !row.LogOverflowed || len(got) > 170_000 {
		t.Errorf("%d lines are kept, overflowed %t", len(got), row.LogOverflowed)
	}
	if diff := cmp.Diff([]string{"why it failed", "result s"}, got[len(got)-2:]); diff != "" {
		t.Errorf("its end (-want +got):\n%s", diff)
	}
}

// TestOldEpochIsRefused checks that the server refuses events of an ended lease with the reason, and they change nothing.
func TestOldEpochIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(d *jobs.Options) { d.Grace = 200 * time.Millisecond })
	id := w.insert(nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	r := w.raw(t, as)
	offer := r.accept()
	r.event(offer, checkpoint("s1"))
	next[*provisionerpb.ServerMessage_Ack](r)
	for name, wrong := range map[string]*provisionerpb.Offer{
		"an older epoch": {JobId: offer.GetJobId(), Epoch: offer.GetEpoch() - 1},
		"a newer epoch":  {JobId: offer.GetJobId(), Epoch: offer.GetEpoch() + 1},
		"no such job":    {JobId: make([]byte, 16), Epoch: 1},
	} {
		r.seq = 7
		r.event(wrong, checkpoint("stolen"))
		if got := next[*provisionerpb.ServerMessage_Revoked](r).Revoked; got.GetReason() != "the job was given to another provisioner, or has ended" {
			t.Errorf("%s: refused with %q", name, got.GetReason())
		}
	}
	// Another daemon with the right epoch does not hold the job.
	other := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "other"})
	next[*provisionerpb.ServerMessage_Welcome](other)
	other.seq = 1
	other.event(offer, checkpoint("stolen"))
	next[*provisionerpb.ServerMessage_Revoked](other)

	// A daemon that comes back too late learns that from the welcome.
	if err := r.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	w.await(id, "failed")
	late := w.raw(t, as, &provisionerpb.Lease{JobId: offer.GetJobId(), Epoch: offer.GetEpoch(), LastSeq: 2})
	welcome := next[*provisionerpb.ServerMessage_Welcome](late).Welcome
	if len(welcome.GetRevoked()) != 1 || welcome.GetRevoked()[0].GetReason() != "the job has ended: failed" || len(welcome.GetAcks()) != 0 {
		t.Errorf("welcome: %v", welcome)
	}
	if diff := cmp.Diff([]string{"checkpoint s1", "result "}, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestCut checks that a daemon that lost its access is cut: its running jobs fail with the reason and keep the state they
// reached, its offers wait again.
func TestCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	as := jobs.Daemon{ID: uuid.New(), Name: "raw"}
	id := w.insert(nil)
	r := w.raw(t, as)
	offer := r.accept()
	r.event(offer, checkpoint("s1"))
	next[*provisionerpb.ServerMessage_Ack](r)
	offered := w.insert(nil)
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
	next[*provisionerpb.ServerMessage_Offer](r)
	if err := w.service.Cut(t.Context(), as.ID, "The key was deleted."); err != nil {
		t.Fatal(err)
	}
	row := w.await(id, "failed")
	if want := "The key was deleted. The last reported state is kept, and the next build continues from it. " +
		"Changes that it began after its last report are not in that state and not listed here."; row.Error != want {
		t.Errorf("error is %q, want %q", row.Error, want)
	}
	w.await(offered, "pending")
	for range r.messages { // until the stream ends
	}
	var online bool
	if err := w.DB.Pool.QueryRow(t.Context(), "SELECT online FROM provisioner_daemons WHERE id = $1", as.ID).Scan(&online); err != nil || online {
		t.Errorf("online %t, %v", online, err)
	}
	w.start("two", nil, nil, nil)
	w.await(offered, "succeeded")
	if err := w.service.Cut(t.Context(), uuid.New(), "never was"); err != nil {
		t.Errorf("cut somebody unknown: %v", err)
	}
}

// TestOneNameOneDaemon checks that a name belongs to one daemon: the server refuses another while the first is connected or
// holds a job, and tells it what to do.
func TestOneNameOneDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	id := w.insert(nil)
	first := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "rack"})
	offer := first.accept()
	refused := func(when string) {
		t.Helper()
		second := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "rack"})
		got := next[*provisionerpb.ServerMessage_Refused](second).Refused.GetReason()
		if want := fmt.Sprintf("The name %q belongs to another provisioner: choose another with --name.", "rack"); got != want {
			t.Errorf("%s: refused with %q, want %q", when, got, want)
		}
	}
	refused("while it is connected")
	first.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("")}})
	w.await(id, "succeeded")
	refused("while it is idle")
	if err := first.stream.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(w.T, "the first is gone", w.Counts(0, "SELECT count(*) FROM provisioner_daemons WHERE online"))
	next[*provisionerpb.ServerMessage_Welcome](w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "rack"}))
}

// finish ends a job that has sent no event as succeeded.
func (r *raw) finish(offer *provisionerpb.Offer) {
	r.t.Helper()
	r.seq = 0
	r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("")}})
	next[*provisionerpb.ServerMessage_Ack](r)
}
