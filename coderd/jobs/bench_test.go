package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/codermesh/codermesh/provisionerd/job"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// BenchmarkPickup measures from the commit that queues a job to its first instruction on an idle daemon, with other jobs
// waiting in the queue that the daemon may not take. It reports the median and the 99th percentile in milliseconds.
func BenchmarkPickup(b *testing.B) {
	for _, queued := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint(queued, " queued"), func(b *testing.B) {
			w := newWorld(b, nil)
			if _, err := w.db.Pool.Exec(b.Context(), `INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, log_length)
				SELECT gen_random_uuid(), $1, $2, 'workspace_build', $3, jsonb_build_object('scope', 'organization', 'owner', '', 'pool', (n % 20)::text), 1 FROM generate_series(1, $4) n`,
				w.org, w.user, w.file, queued); err != nil {
				b.Fatal(err)
			}
			began := make(chan time.Time)
			p := w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
				began <- time.Now()
				return succeeded("")
			}}, nil)
			<-p.Started()
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				w.eventually("the daemon is idle", func() bool {
					var n int
					err := w.db.Pool.QueryRow(b.Context(), "SELECT count(*) FROM provisioner_jobs WHERE status = 'running'").Scan(&n)
					return err == nil && n == 0
				}, nil)
				b.StartTimer()
				w.insert(nil)
				at := time.Now()
				took = append(took, (<-began).Sub(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		})
	}
}
