package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestStoppingServerTellsWhoWaits: who waits for a job of a stopping server's own provisioner learns when it is interrupted, and the pages that
// show the job hear of it. Jobs of external provisioners go on.
func TestStoppingServerTellsWhoWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	own, external := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "own", BuiltIn: true}), w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "external"})
	job := w.insert(nil)
	own.accept()
	other := w.insert(nil)
	external.accept()
	heard := make(chan struct{}, 100)
	defer w.notify.Subscribe(jobs.Channel(job), func(string) { heard <- struct{}{} })()
	if err := w.service.Stopping(t.Context(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	testwait.For(t, "pages are told", heard)
	shown, err := w.service.JSON(t.Context(), w.DB.Queries, job, other)
	if err != nil {
		t.Fatal(err)
	}
	if got := shown[job]; !strings.HasPrefix(got.WaitingReason, "The server of the provisioner own is stopping. It waits for this job until ") || got.WaitingRemedy == "" {
		t.Errorf("the job says %q, %q", got.WaitingReason, got.WaitingRemedy)
	}
	if got := shown[other]; got.WaitingReason != "" || got.WaitingRemedy != "" {
		t.Errorf("the job of an external provisioner says %q, %q", got.WaitingReason, got.WaitingRemedy)
	}
}

// TestStoppingServerTellsQueued checks what a job in the queue says, to people and in its log, once the servers of all
// provisioners that may take it are stopping.
func TestStoppingServerTellsQueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	own := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "own", BuiltIn: true})
	w.insert(nil)
	own.accept()
	queued := w.insert(nil)
	log := func() (text string) {
		t.Helper()
		rows, err := w.DB.Pool.Query(t.Context(), "SELECT output FROM provisioner_job_logs WHERE job_id = $1 ORDER BY id", queued)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(lines, "\n")
	}
	shown := func() (reason, remedy string) {
		t.Helper()
		all, err := w.service.JSON(t.Context(), w.DB.Queries, queued)
		if err != nil {
			t.Fatal(err)
		}
		return all[queued].WaitingReason, all[queued].WaitingRemedy
	}
	testwait.Until(t, "the log names the place", func() error { return testwait.Contains(log(), "1st in line") })
	if err := w.service.Stopping(t.Context(), time.Date(2040, 1, 1, 12, 30, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	const want = "The provisioner own takes no job: its server is stopping, and waits for the job that it runs until 12:30:00 UTC at most."
	if reason, remedy := shown(); reason != want || !strings.HasPrefix(remedy, "It runs once a server is back") {
		t.Errorf("the job says %q, %q", reason, remedy)
	}
	if got := log(); strings.Count(got, want) != 1 {
		t.Errorf("the log says %q", got)
	}

	external := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "external"})
	external.accept()
	next := w.insert(nil)
	all, err := w.service.JSON(t.Context(), w.DB.Queries, next)
	if err != nil {
		t.Fatal(err)
	}
	if got := all[next]; got.WaitingReason != "The matching provisioner is busy; position 1 in the queue." || got.WaitingRemedy != "" {
		t.Errorf("beside a provisioner that goes on, a job says %q, %q", got.WaitingReason, got.WaitingRemedy)
	}
}
