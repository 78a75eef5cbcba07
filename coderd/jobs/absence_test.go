package jobs_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/jobs"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// running is a job that a daemon runs, with its first checkpoint stored.
type running struct {
	id    uuid.UUID
	as    jobs.Daemon
	offer *provisionerpb.Offer
	raw   *raw
}

// begin lets a new daemon of this server run a new job.
func (w *world) begin(t *testing.T, name string, builtIn bool) running {
	t.Helper()
	pool := map[string]string{"pool": uuid.NewString()}
	run := running{id: w.insert(pool), as: jobs.Daemon{ID: uuid.New(), Name: name, Tags: pool, BuiltIn: builtIn}}
	run.raw = w.raw(t, run.as)
	run.offer = run.raw.accept()
	run.raw.event(run.offer, checkpoint("s1"))
	next[*provisionerpb.ServerMessage_Ack](run.raw)
	return run
}

func (run running) lease() *provisionerpb.Lease {
	return &provisionerpb.Lease{JobId: run.offer.GetJobId(), Epoch: run.offer.GetEpoch(), LastSeq: 1}
}

// reason returns why a job waits, as the API shows it.
func (w *world) reason(id uuid.UUID) string {
	w.T.Helper()
	shown, err := w.service.JSON(context.Background(), w.DB.Queries, id)
	if err != nil {
		w.T.Fatal(err)
	}
	return shown[id].Waiting()
}

// absent waits until a job says that its provisioner is offline.
func (w *world) absent(run running) {
	w.T.Helper()
	testwait.Until(w.T, "the job says that its provisioner is offline", func() error {
		reason := w.reason(run.id)
		return testwait.Unless(strings.Contains(reason, "The provisioner "+run.as.Name+" has been offline since "), "the reason is %q", reason)
	})
	if lines := w.told(run.id); !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, run.as.Name+" has been offline since ") }) {
		w.T.Errorf("the log of the job is %q", lines)
	}
}

// told returns what the log of a job says of its provisioner, in order.
func (w *world) told(id uuid.UUID) (lines []string) {
	w.T.Helper()
	rows, err := w.DB.ListJobLogs(context.Background(), dbsqlc.ListJobLogsParams{JobID: id, Before: math.MaxInt64, MaxRows: 1000})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, row := range rows {
		if row.Stage == "Provisioner" {
			lines = append(lines, row.Output)
		}
	}
	return lines
}

func beating(d *jobs.Options) {
	d.Heartbeat, d.BuiltInGrace, d.Grace = 50*time.Millisecond, time.Second, time.Hour
}

// TestBuiltInJobsEndWithTheirServer checks a server that never comes back: the jobs of its built-in provisioners, however many, end long
// before the grace period, and those of its external ones do not.
func TestBuiltInJobsEndWithTheirServer(t *testing.T) {
	t.Parallel()
	all := servers(t, 3, beating)
	external := all[1].begin(t, "external", false)
	var builtIn []running
	for i := range 5 {
		builtIn = append(builtIn, all[1].begin(t, fmt.Sprint("built-in-", i), true))
	}
	all[1].kill()
	for _, run := range builtIn {
		row := all[0].await(run.id, "failed")
		for _, part := range []string{"ended with its server", "The provisioner " + run.as.Name + " has been offline since ", "The last reported state is kept"} {
			if !strings.Contains(row.Error, part) {
				t.Errorf("the error is %q, without %q", row.Error, part)
			}
		}
		if lines := all[0].told(run.id); !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, "has been offline since") }) {
			t.Errorf("the log is %q", lines)
		}
	}
	all[2].absent(external)
	if row := all[0].row(external.id); row.Status != "running" {
		t.Errorf("the job of the external provisioner is %s: %s", row.Status, row.Error)
	}
}

// TestBuiltInJobOfARestartedServer checks that a built-in provisioner that is back in time, with its server's next process, keeps its job, and
// that the log says that it is back.
func TestBuiltInJobOfARestartedServer(t *testing.T) {
	t.Parallel()
	all := servers(t, 3, func(d *jobs.Options) { beating(d); d.BuiltInGrace = time.Hour })
	run := all[1].begin(t, "built-in", true)
	all[1].kill()
	all[0].absent(run)

	back := all[2].raw(t, run.as, run.lease())
	if acks := next[*provisionerpb.ServerMessage_Welcome](back).Welcome.GetAcks(); len(acks) != 1 {
		t.Fatalf("the welcome acknowledges %v", acks)
	}
	testwait.Until(t, "the job says that its provisioner is back", func() error {
		lines := all[0].told(run.id)
		return testwait.Unless(slices.Contains(lines, "The provisioner built-in is back.") && all[0].reason(run.id) == "", "the log is %q", lines)
	})
	back.seq = 1
	back.event(run.offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s2")}})
	all[0].await(run.id, "succeeded")
}

// TestSilenceInAnOutageIsNoDeath checks that servers which had no database for longer than the jobs of a dead server live do not take each
// other for dead.
func TestSilenceInAnOutageIsNoDeath(t *testing.T) {
	t.Parallel()
	all := servers(t, 2, beating)
	run := all[1].begin(t, "built-in", true)
	all[0].Exec("ALTER TABLE servers RENAME TO away")
	testwait.Until(t, "the outage is longer than the grace period", all[0].Counts(2, "SELECT count(*) FROM away WHERE beat_at < now() - interval '2 seconds'"))
	all[0].Exec("ALTER TABLE away RENAME TO servers")
	all[0].beats(2)
	if row := all[0].row(run.id); row.Status != "running" {
		t.Errorf("the job is %s: %s", row.Status, row.Error)
	}
}

// TestCancelOfAnAbsentProvisionersJob checks that canceling a job whose provisioner is offline ends it at once, whichever server is asked, and
// that the provisioner must not go on with it when it is back.
func TestCancelOfAnAbsentProvisionersJob(t *testing.T) {
	t.Parallel()
	for name, builtIn := range map[string]bool{"built-in": true, "external": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := servers(t, 2, func(d *jobs.Options) { beating(d); d.BuiltInGrace = time.Hour })
			run := all[1].begin(t, name, builtIn)
			all[1].kill()
			all[0].absent(run)
			if err := all[0].service.Cancel(t.Context(), run.id, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
				t.Fatal(err)
			}
			row := all[0].row(run.id)
			if row.Status != "canceled" || !strings.Contains(row.Error, "The job was canceled. The provisioner "+name+" has been offline since ") {
				t.Errorf("the job is %s: %s", row.Status, row.Error)
			}
			back := all[0].raw(t, run.as, run.lease())
			if revoked := next[*provisionerpb.ServerMessage_Welcome](back).Welcome.GetRevoked(); len(revoked) != 1 {
				t.Errorf("the welcome revokes %v", revoked)
			}
		})
	}
}

// TestCancelBeforeTheProvisionerLeaves checks that a job that was being canceled when its provisioner left ends as canceled.
func TestCancelBeforeTheProvisionerLeaves(t *testing.T) {
	t.Parallel()
	all := servers(t, 2, func(d *jobs.Options) { beating(d); d.CancelGrace = time.Second })
	run := all[1].begin(t, "external", false)
	if err := all[0].service.Cancel(t.Context(), run.id, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		t.Fatal(err)
	}
	next[*provisionerpb.ServerMessage_Cancel](run.raw)
	all[1].kill()
	if row := all[0].await(run.id, "canceled"); !strings.Contains(row.Error, "external has been offline since ") {
		t.Errorf("the error is %q", row.Error)
	}
}

// TestServerThatAloneLostTheDatabase checks that a living server that the others take for dead stops the jobs of its built-in provisioners,
// that it keeps them while the others have no database either, and that it leaves the jobs of external provisioners alone.
func TestServerThatAloneLostTheDatabase(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	w := newWorld(t, func(d *jobs.Options) {
		beating(d)
		d.Outvoted = func(context.Context) bool { return asked.Add(1) > 10 }
	})
	run, external := w.begin(t, "built-in", true), w.begin(t, "external", false)
	w.Exec("ALTER TABLE servers RENAME TO away")
	revoked := next[*provisionerpb.ServerMessage_Revoked](run.raw).Revoked
	if uuid.UUID(revoked.GetJobId()) != run.id || asked.Load() <= 10 {
		t.Errorf("job %x was revoked after %d questions", revoked.GetJobId(), asked.Load())
	}
	if row := w.await(run.id, "failed"); !strings.Contains(row.Error, "had lost the database for") {
		t.Errorf("the error is %q", row.Error)
	}
	w.Exec("ALTER TABLE away RENAME TO servers")
	external.raw.event(external.offer, &provisionerpb.Event{Event: &provisionerpb.Event_Result{Result: succeeded("s2")}})
	w.await(external.id, "succeeded")
}

// TestSlowerHeartbeats checks that the jobs of a server that writes heartbeats less often, as earlier programs do, are not taken for lost.
func TestSlowerHeartbeats(t *testing.T) {
	t.Parallel()
	w := newWorld(t, beating)
	daemon, slow := uuid.New(), uuid.New()
	w.Exec("INSERT INTO servers (id, beat_at) VALUES ($1, now() - interval '5 seconds')", slow)
	w.Exec("INSERT INTO provisioner_daemons (id, organization_id, name, online, built_in, server_id, last_seen_at) VALUES ($1, $2, 'slow', true, true, $3, now() - interval '1 hour')",
		daemon, w.Org, slow)
	id := w.insert(map[string]string{"pool": "slow"})
	w.Exec("UPDATE provisioner_jobs SET status = 'running', started_at = now(), worker_id = $2, epoch = 1 WHERE id = $1", id, daemon)
	testwait.Until(t, "this server judges others", w.Counts(1, "SELECT count(*) FROM servers WHERE beat_at > started_at + interval '1 second'"))
	if !w.online(daemon) || w.reason(id) != "" {
		t.Errorf("online: %t, reason %q", w.online(daemon), w.reason(id))
	}
	if err := w.service.Cancel(t.Context(), id, audit.Entry{Kind: audit.ProvisionerJob}); err != nil {
		t.Fatal(err)
	}
	if row := w.row(id); row.Status != "canceling" {
		t.Errorf("the canceled job is %s: %s", row.Status, row.Error)
	}
}
