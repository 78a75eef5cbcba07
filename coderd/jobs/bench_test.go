package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/job"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// BenchmarkPickup measures the time from the commit that queues a job to its first instruction on an idle daemon, while the
// queue holds other jobs that the daemon may not take. It reports the median and the 99th percentile in milliseconds.
func BenchmarkPickup(b *testing.B) {
	for _, queued := range []int{0, 100, 10_000} {
		b.Run(fmt.Sprint(queued, " queued"), func(b *testing.B) {
			w := newWorld(b, nil)
			queue(b, w, queued)
			began := make(chan time.Time)
			p := w.start("one", nil, &executor{run: func(context.Context, <-chan struct{}, job.Run) *provisionerpb.Result {
				began <- time.Now()
				return succeeded("")
			}}, nil)
			<-p.Started()
			var took []time.Duration
			for b.Loop() {
				b.StopTimer()
				testwait.Until(w.T, "the daemon is idle", w.Counts(0, "SELECT count(*) FROM provisioner_jobs WHERE status = 'running'"))
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

// queue makes 1 000 users queue jobs for 20 pools.
func queue(b *testing.B, w *world, n int) {
	b.Helper()
	for _, sql := range []string{
		`INSERT INTO users (id, username, email) SELECT md5(n::text)::uuid, 'user' || n, 'user' || n || '@example.com' FROM generate_series(0, 999) n`,
		fmt.Sprintf(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, log_length)
			SELECT gen_random_uuid(), '%s', md5((n %% 1000)::text)::uuid, 'workspace_build', '%s', jsonb_build_object('scope', 'organization', 'owner', '', 'pool', (n %% 20)::text), 1
			FROM generate_series(1, %d) n`, w.Org, w.file, n),
		`ANALYZE provisioner_jobs`,
	} {
		if _, err := w.DB.Pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLease measures the query that leases the next job when the daemon may take every waiting job. It reports the
// median and the 99th percentile in milliseconds.
func BenchmarkLease(b *testing.B) {
	for _, queued := range []int{100, 10_000} {
		b.Run(fmt.Sprint(queued, " queued"), func(b *testing.B) {
			w := newWorld(b, nil)
			queue(b, w, queued)
			daemon := uuid.New()
			if _, err := w.DB.Pool.Exec(b.Context(), `INSERT INTO provisioner_daemons (id, organization_id, name) VALUES ($1, $2, 'bench')`, daemon, w.Org); err != nil {
				b.Fatal(err)
			}
			var took []time.Duration
			for b.Loop() {
				at := time.Now()
				job, err := w.DB.LeaseJob(b.Context(), dbsqlc.LeaseJobParams{
					WorkerID: &daemon, FirstOrganization: w.Org, LastOrganization: w.Org, Tags: []byte(fmt.Sprintf(`{"scope": "organization", "owner": "", "pool": "%d"}`, len(took)%20)),
				})
				took = append(took, time.Since(at))
				if err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := w.DB.RequeueJob(b.Context(), dbsqlc.RequeueJobParams{ID: job.ID, Epoch: job.Epoch}); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2])/1e6, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100])/1e6, "p99-ms")
		})
	}
}

// BenchmarkBuilds measures how many builds with a log, two checkpoints and a result a server and its daemons run per second,
// from a queue that is never empty. The daemons run scripts instead of Terraform, so the rest is the queue, the protocol,
// the journals' disk and the database.
func BenchmarkBuilds(b *testing.B) {
	for _, c := range []struct{ daemons, slots int }{{1, 1}, {3, 1}, {3, 4}} {
		b.Run(fmt.Sprintf("%d daemons with %d slots", c.daemons, c.slots), func(b *testing.B) {
			w := newWorld(b, nil)
			archive, err := echo.Script{"start": {
				{Log: "hello", Stage: "Starting workspace"}, {Checkpoint: `{"serial": 1}`}, {Checkpoint: `{"serial": 2}`},
				{Result: []byte(`{"workspaceBuild": {"state": "e30="}}`)},
			}}.Archive()
			if err != nil {
				b.Fatal(err)
			}
			if _, err := w.DB.Pool.Exec(b.Context(), "UPDATE files SET data = $1, sha256 = encode(sha256($1), 'hex')", archive); err != nil {
				b.Fatal(err)
			}
			for n := range c.daemons {
				p := w.start(fmt.Sprint("daemon-", n), nil, nil, func(o *provisionerd.Options) { o.Slots, o.Executor = c.slots, &echo.Executor{} })
				<-p.Started()
			}
			ended := make(chan struct{}, 1)
			defer w.notify.Subscribe("jobs", func(string) {
				select {
				case ended <- struct{}{}:
				default:
				}
			})()
			b.ResetTimer()
			if _, err := w.DB.Pool.Exec(b.Context(), `INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags)
				SELECT gen_random_uuid(), $1, $2, 'workspace_build', $3, '{"scope": "organization", "owner": ""}' FROM generate_series(1, $4)`, w.Org, w.user, w.file, b.N); err != nil {
				b.Fatal(err)
			}
			if err := w.notify.Publish(b.Context(), "jobs", ""); err != nil {
				b.Fatal(err)
			}
			for left := b.N; left > 0; {
				<-ended
				if err := w.DB.Pool.QueryRow(b.Context(), "SELECT count(*) FROM provisioner_jobs WHERE status <> 'succeeded'").Scan(&left); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "builds/s")
		})
	}
}
