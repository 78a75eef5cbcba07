package jobs_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var ids []uuid.UUID
	for i := range 6 {
		err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			row, err := w.service.Insert(t.Context(), q, jobs.NewJob{Kind: kind, Org: w.Org, Initiator: w.user, FileID: w.file, Priority: int16(i % 2)})
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

// TestFairness checks that one user's long queue does not block another user: they take turns, and jobs that people wait for
// still come before automatic ones.
func TestFairness(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bob := uuid.New()
	w.Exec("INSERT INTO users (id, username, email) VALUES ($1, 'bob', 'bob@example.com')", bob)
	names := map[uuid.UUID]string{}
	insert := func(name string, initiator uuid.UUID, priority int16) {
		t.Helper()
		if err := w.DB.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			row, err := w.service.Insert(t.Context(), q, jobs.NewJob{Kind: kind, Org: w.Org, Initiator: initiator, FileID: w.file, Priority: priority})
			names[row.ID] = name
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	insert("bob automatic", bob, 1)
	for _, name := range []string{"ann 1", "ann 2", "ann 3", "ann 4"} {
		insert(name, w.user, 0)
	}
	insert("bob 1", bob, 0)
	insert("bob 2", bob, 0)
	want := []string{"ann 1", "bob 1", "ann 2", "bob 2", "ann 3", "ann 4", "bob automatic"}

	positions, err := w.DB.ListPendingPositions(t.Context(), slices.Collect(maps.Keys(names)))
	if err != nil {
		t.Fatal(err)
	}
	shown := make([]string, len(want))
	for _, p := range positions {
		shown[p.Position-1] = names[p.ID]
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}

	ran := make(chan uuid.UUID, len(want))
	w.start("one", nil, &executor{run: func(_ context.Context, _ <-chan struct{}, run job.Run) *provisionerpb.Result {
		ran <- uuid.UUID(run.Offer.GetJobId())
		return succeeded("")
	}}, nil)
	var got []string
	for range want {
		got = append(got, names[<-ran])
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestFewestRunningFirst checks that with several slots, the next one goes to the user with the fewest running jobs, however
// late that user came.
func TestFewestRunningFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	bob := uuid.New()
	w.Exec("INSERT INTO users (id, username, email) VALUES ($1, 'bob', 'bob@example.com')", bob)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	for range 4 {
		w.insert(nil)
	}
	r.accept()
	r.accept()
	id := w.insert(nil)
	w.Exec("UPDATE provisioner_jobs SET initiator_id = $2, created_at = now() + interval '1 minute' WHERE id = $1", id, bob)
	if got := uuid.UUID(r.accept().GetJobId()); got != id {
		t.Errorf("the third slot went to %s, want bob's %s", got, id)
	}
}

// cancel cancels a job.
func (w *world) cancel(id uuid.UUID) {
	w.T.Helper()
	if err := w.service.Cancel(w.T.Context(), id, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		w.T.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("waiting", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		id := w.insert(nil)
		w.cancel(id)
		w.await(id, "canceled")
		p := w.start("one", nil, nil, nil)
		w.await(w.insert(nil), "succeeded")
		if n := p.exec.runs(); n != 1 {
			t.Errorf("%d jobs ran, want 1", n)
		}
		if err := w.service.Cancel(t.Context(), id, audit.Entry{Kind: audit.ProvisionerJob}); fault.CodeOf(err) != fault.Conflict {
			t.Errorf("second cancel: %v, want a conflict", err)
		}
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
			close(began)
			<-stop
			return failed("half", "interrupted")
		}}, nil)
		id := w.insert(nil)
		<-began
		w.cancel(id)
		w.await(id, "canceled")
		if diff := cmp.Diff([]string{"result half"}, w.lines(id)); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, nil)
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(_ context.Context, stop <-chan struct{}, _ job.Run) *provisionerpb.Result {
			close(began)
			<-stop
			return succeeded("all")
		}}, nil)
		id := w.insert(nil)
		<-began
		w.cancel(id)
		w.await(id, "succeeded")
	})
	t.Run("forced", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, func(d *jobs.Options) { d.CancelGrace = 100 * time.Millisecond })
		began := make(chan struct{})
		w.start("one", nil, &executor{run: func(ctx context.Context, _ <-chan struct{}, _ job.Run) *provisionerpb.Result {
			close(began)
			<-ctx.Done()
			return failed("half", "killed")
		}}, nil)
		id := w.insert(nil)
		<-began
		w.cancel(id)
		w.await(id, "canceled")
	})
	t.Run("while the daemon is away", func(t *testing.T) {
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
		p.link.block(true)
		w.cancel(id)
		p.link.block(false)
		w.await(id, "canceled")
	})
}
