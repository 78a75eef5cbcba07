package jobs_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

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
