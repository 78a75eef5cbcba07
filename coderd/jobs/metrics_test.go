package jobs_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/testwait"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// counted waits until a scrape has all lines.
func (w *world) counted(lines ...string) {
	w.T.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.service.Collector())
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	testwait.Until(w.T, "jobs are counted", func() error {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		for _, line := range lines {
			if !strings.Contains(answer.Body.String(), "\n"+line+"\n") {
				return fmt.Errorf("no line %s in\n%s", line, answer.Body)
			}
		}
		return nil
	})
}

// TestJobsAreCounted checks that every job is counted once, however it ends, and that a result that is sent again is not counted again.
func TestJobsAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.counted("coderd_provisionerd_num_daemons 0", `coderd_provisionerd_jobs_current{provisioner="terraform"} 0`)

	release := make(chan struct{})
	w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
		<-release
		return succeeded("s")
	}}, nil)
	id := w.insert(nil)
	w.counted("coderd_provisionerd_num_daemons 1", `coderd_provisionerd_jobs_current{provisioner="terraform"} 1`)
	close(release)
	w.await(id, "succeeded")
	w.counted(`coderd_provisionerd_jobs_current{provisioner="terraform"} 0`,
		`coderd_provisionerd_job_timings_seconds_count{provisioner="terraform",status="success"} 1`, "codermesh_job_queue_seconds_count 1")

	waiting := w.insert(map[string]string{"place": "nowhere"})
	if err := w.service.Cancel(t.Context(), waiting, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		t.Fatal(err)
	}
	w.await(waiting, "canceled")

	tags := map[string]string{"place": "here"}
	again := w.insert(tags)
	r := w.raw(t, jobs.Daemon{ID: uuid.New(), Name: "raw", Tags: tags})
	offer := r.accept()
	result := &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: failed("", "no")}}
	r.event(offer, result)
	next[*provisionerpb.ServerMessage_Ack](r)
	r.seq--
	r.event(offer, result)
	if ack := next[*provisionerpb.ServerMessage_Ack](r).Ack; ack.GetSeq() != 1 {
		t.Errorf("the repeated result was acknowledged up to %d, want 1", ack.GetSeq())
	}
	w.await(again, "failed")
	// Counted after the repeated result, since the server applies a daemon's events in order.
	r.send(&provisionerpb.DaemonMessage{Message: &provisionerpb.DaemonMessage_Ready{Ready: &provisionerpb.Ready{Slots: 1}}})
	last := w.insert(tags)
	next[*provisionerpb.ServerMessage_Offer](r)
	w.await(last, "running")
	w.counted(`coderd_provisionerd_job_timings_seconds_count{provisioner="terraform",status="failed"} 1`,
		`coderd_provisionerd_job_timings_seconds_count{provisioner="terraform",status="success"} 1`, "codermesh_job_queue_seconds_count 2",
		"coderd_provisionerd_num_daemons 2")
}
