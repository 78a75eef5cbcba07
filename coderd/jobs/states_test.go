package jobs_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func inPieces(o *provisionerd.Options) { o.PieceBytes = 7 }

func changes(run job.Run, all ...*provisionerpb.Change) {
	for _, c := range all {
		run.Sink.Change(c)
	}
}

var (
	begun    = &provisionerpb.Change{Address: "t.begun", Creates: true}
	complete = &provisionerpb.Change{Address: "t.begun", Creates: true, End: provisionerpb.Change_END_COMPLETE}
	other    = &provisionerpb.Change{Address: "t.other"}
)

// left counts the rows that an ended job still has in the tables.
func (w *world) left(id uuid.UUID) (rows int) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(w.T.Context(), `SELECT (SELECT count(*) FROM provisioner_job_changes WHERE job_id = $1)
		+ (SELECT count(*) FROM provisioner_job_state_pieces WHERE job_id = $1)`, id).Scan(&rows); err != nil {
		w.T.Fatal(err)
	}
	return rows
}

// TestStatesInPieces checks that a state that is larger than a message arrives whole: with a checkpoint, with a result, and
// over cut connections.
func TestStatesInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var p *provisioner
	ready := make(chan struct{})
	p = w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		<-ready
		run.Sink.Checkpoint([]byte("a first state of some bytes"))
		run.Sink.Checkpoint([]byte("small"))
		p.link.cut()
		run.Sink.Checkpoint([]byte("exactly fourteen bytes bounds"))
		return succeeded("the last state, which is longer than a piece")
	}}, inPieces)
	close(ready)
	id := w.insert(nil)
	w.await(id, "succeeded")
	want := []string{
		"checkpoint a first state of some bytes", "checkpoint small", "checkpoint exactly fourteen bytes bounds",
		"result the last state, which is longer than a piece",
	}
	if diff := cmp.Diff(want, w.lines(id)); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
	if n := w.left(id); n != 0 {
		t.Errorf("%d rows are left of a job that ended", n)
	}
}

// TestStateOfAnOfferInPieces checks that the daemon fetches a state that is too large for an offer. The server refuses
// another daemon's request for it.
func TestStateOfAnOfferInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.state = bytes.Repeat([]byte("0123456789abcdef"), (5<<20)/16)
	got := make(chan []byte, 1)
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		got <- run.Offer.GetWorkspaceBuild().GetState()
		return succeeded("")
	}}, nil)
	w.await(w.insert(nil), "succeeded")
	if state := <-got; !bytes.Equal(state, w.state) {
		t.Errorf("the job began with %d bytes, want %d", len(state), len(w.state))
	}
}

// TestBadPieces checks that the server refuses pieces that do not make the announced state, and names what the job had begun
// instead.
func TestBadPieces(t *testing.T) {
	t.Parallel()
	for name, pieces := range map[string][]*provisionerpb.StatePiece{
		"none":          nil,
		"a gap":         {{Offset: 0, Data: []byte("abc")}, {Offset: 4, Data: []byte("d")}},
		"too short":     {{Offset: 0, Data: []byte("abc")}},
		"changed":       {{Offset: 0, Data: []byte("abce")}},
		"too long":      {{Offset: 0, Data: []byte("abcde")}},
		"without start": {{Offset: 1, Data: []byte("abcd")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			id := w.insert(nil)
			r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
			offer := r.accept()
			r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Log{Log: &provisionerpb.LogBatch{Changes: []*provisionerpb.Change{begun}}}})
			for _, piece := range pieces {
				r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_StatePiece{StatePiece: piece}})
			}
			sum := sha256.Sum256([]byte("abcd"))
			result := &provisionerpb.Result{Error: "broke", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
				StateInPieces: &provisionerpb.StateRef{Size: 4, Sha256: sum[:]},
			}}}
			r.event(offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: result}})
			if row := w.await(id, "failed"); row.Error != "broke Named." {
				t.Errorf("error %q, want what the provisioner said and the names", row.Error)
			}
		})
	}
}

// TestLostJobNamesWhatItBegan checks that a job whose provisioner is lost names what it had begun; a job that reports its
// own end has done so itself.
func TestLostJobNamesWhatItBegan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	reported := make(chan struct{})
	as := jobs.Daemon{ID: uuid.New(), Name: "one"}
	p := w.startIn(as, t.TempDir(), &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
		changes(run, begun, other, complete)
		close(reported)
		<-stop
		return failed("", "")
	}}, nil)
	id := w.insert(nil)
	<-reported
	testwait.Until(w.T, "the changes are stored", func() error { return testwait.Equal(w.left(id), 2) })
	p.link.block(true) // as the mesh does for a deleted key
	if err := w.service.Cut(t.Context(), as.ID, "The key was deleted."); err != nil {
		t.Fatal(err)
	}
	row := w.await(id, "failed")
	if !strings.HasPrefix(row.Error, "The key was deleted.") || !strings.HasSuffix(row.Error, " Named.") {
		t.Errorf("error %q", row.Error)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if diff := cmp.Diff([]*provisionerpb.Change{complete, other}, w.lost, protocmp.Transform()); diff != "" {
		t.Errorf("named (-want +got):\n%s", diff)
	}
	if n := w.left(id); n != 0 {
		t.Errorf("%d rows are left of a job that ended", n)
	}
}

// TestKilledWithStateInPieces checks that a daemon that was killed while sending a large state delivers what is on its disk:
// the changes, and the last whole state.
func TestKilledWithStateInPieces(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	reached := make(chan struct{})
	as := jobs.Daemon{ID: uuid.New(), Name: "one"}
	p := w.startIn(as, t.TempDir(), &executor{run: func(_ context.Context, stop <-chan struct{}, run job.Run) *provisionerpb.Result {
		changes(run, begun)
		run.Sink.Checkpoint([]byte("a state of more than seven bytes"))
		close(reached)
		<-stop
		return failed("", "")
	}}, inPieces)
	id := w.insert(nil)
	<-reached
	known := make(chan job.Known, 1)
	next := p.crash(&executor{known: known})
	w.await(id, "failed")
	k := <-known
	if string(k.Checkpoint) != "a state of more than seven bytes" {
		t.Errorf("recovered from the state %q", k.Checkpoint)
	}
	if diff := cmp.Diff([]*provisionerpb.Change{begun}, k.Changes, protocmp.Transform()); diff != "" {
		t.Errorf("recovered changes (-want +got):\n%s", diff)
	}
	if got := w.lines(id); len(got) == 0 || got[len(got)-1] != "result a state of more than seven bytes" {
		t.Errorf("recorded %q", got)
	}
	testwait.Until(w.T, "the journal is removed", func() error {
		entries, err := filepath.Glob(filepath.Join(next.dir, "*.journal"))
		return testwait.Unless(err == nil && len(entries) == 0, "journals %q (%v)", entries, err)
	})
}

// TestBulkState checks that a state above 64 MiB travels in both directions. Message limits do not bound it.
func TestBulkState(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	state := bytes.Repeat([]byte("0123456789abcdef"), (72<<20)/16)
	copy(state[70<<20:], "a difference far behind")
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, _ job.Run) *provisionerpb.Result {
		return &provisionerpb.Result{Error: "failed with a large state", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{State: state}}}
	}}, nil)
	got := make(chan []byte, 1)
	w.mu.Lock()
	w.finished = func(result *provisionerpb.Result) { got <- result.GetWorkspaceBuild().GetState() }
	w.mu.Unlock()
	id := w.insert(nil)
	stored := <-got // how long this many bytes take depends on the machine: no deadline
	w.await(id, "failed")
	if !bytes.Equal(stored, state) {
		t.Errorf("stored %d bytes, want %d", len(stored), len(state))
	}
	if n := w.left(id); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
