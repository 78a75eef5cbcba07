package jobs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// queued returns what a job's log says of its place in the queue, with or without the estimates.
func (w *world) queued(id uuid.UUID, estimates bool) []string {
	w.T.Helper()
	rows, err := w.DB.Pool.Query(w.T.Context(), "SELECT output FROM provisioner_job_logs WHERE job_id = $1 AND stage = 'Queued' ORDER BY id", id)
	if err != nil {
		w.T.Fatal(err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			w.T.Fatal(err)
		}
		place, _, _ := strings.Cut(line, ". Provisioners")
		if !estimates {
			place, _, _ = strings.Cut(place, ",")
		}
		out = append(out, place)
	}
	return out
}

// TestLogNamesPlace follows a job from the ninth place in the queue to its start: its log names its place and about how long it waits, at
// once and whenever the place has halved.
func TestLogNamesPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	done := w.insert(nil)
	r.finish(r.accept())
	w.await(done, "succeeded")
	w.Exec("UPDATE provisioner_jobs SET started_at = completed_at - interval '1 minute' WHERE id = $1", done)

	w.insert(nil)
	offer := r.accept()
	var waiting []uuid.UUID
	for range 9 {
		waiting = append(waiting, w.insert(nil))
	}
	last := waiting[8]
	estimates := true
	says := func(want ...string) {
		t.Helper()
		testwait.Until(t, "the log names the place", func() error {
			got := w.queued(last, estimates)
			return testwait.Unless(slices.Equal(got, want), "it says %q, want %q", got, want)
		})
	}
	says("9th in line behind 8 other jobs, about 9 minutes")
	want := []string{"9th in line behind 8 other jobs"}
	estimates = false // of jobs that end at once
	for _, place := range []string{"", "", "", "", "4th in line behind 3 other jobs", "", "2nd in line behind 1 other job", "1st in line"} {
		r.finish(offer)
		offer = r.accept()
		if place != "" {
			want = append(want, place)
			says(want...)
		}
	}
	r.finish(offer)
	if got := uuid.UUID(r.accept().GetJobId()); got != last {
		t.Errorf("the daemon got %s, want the job that waited, %s", got, last)
	}
	says(want...)
}

// TestPlaceIsToldOnce: of several servers that see the same queue, one writes into the logs.
func TestPlaceIsToldOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	other := jobs.New(w.opts)
	other.Handle(kind, recorder{w})
	if err := other.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer other.Stop()
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw"})
	w.insert(nil)
	offer := r.accept()
	var waiting []uuid.UUID
	for range 4 {
		waiting = append(waiting, w.insert(nil))
	}
	want := []string{"4th in line behind 3 other jobs"}
	says := func() {
		t.Helper()
		testwait.Until(t, "the log names the place", func() error {
			got := w.queued(waiting[3], false)
			return testwait.Unless(slices.Equal(got, want), "it says %q, want %q", got, want)
		})
	}
	says()
	for range 2 {
		r.finish(offer)
		offer = r.accept()
	}
	want = append(want, "2nd in line behind 1 other job")
	says()
	r.finish(offer)
	r.accept()
	want = append(want, "1st in line")
	says()
}
