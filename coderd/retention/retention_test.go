package retention_test

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newWorld(t *testing.T) (*coderdtest.Server, *retention.Service, sdk.Template) {
	t.Helper()
	w := coderdtest.New(t)
	s := retention.New(retention.Options{DB: w.DB, Logger: slog.New(slog.DiscardHandler), Limits: retention.Limits{States: 3, Jobs: 30 * 24 * time.Hour}})
	t.Cleanup(s.Stop)
	return w, s, w.Template("process", &provisionerpb.ImportResult{})
}

func count(t *testing.T, w *coderdtest.Server, sql string, args ...any) (n int) {
	t.Helper()
	if err := w.DB.Pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStates checks that the newest builds keep their states and the latest build always does; a request for an older state
// is answered with what happened to it.
func TestStates(t *testing.T) {
	t.Parallel()
	w, s, template := newWorld(t)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	first := w.Get(ws.ID).LatestBuild.ID
	for range 5 {
		w.Build("ann", ws.ID, sdk.TransitionStart)
		w.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	one := w.Workspace("bob", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	for range 2 {
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var kept []int
	rows, err := w.DB.Pool.Query(t.Context(), `SELECT build_number FROM workspace_builds WHERE workspace_id = $1 AND state <> '' ORDER BY 1`, ws.ID)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, n)
	}
	if diff := cmp.Diff([]int{4, 5, 6}, kept); diff != "" {
		t.Errorf("builds with a state (-want +got):\n%s", diff)
	}
	if n := count(t, w, `SELECT count(*) FROM workspace_builds WHERE workspace_id = $1 AND state <> ''`, one.ID); n != 1 {
		t.Errorf("a workspace with one build has %d states", n)
	}
	if err := w.As("olga").BuildState(t.Context(), first, io.Discard); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("the first build's state: %v, want not found", err)
	}
	// A build continues from the latest state.
	w.Build("ann", ws.ID, sdk.TransitionStop)
	job := w.Daemon().Next()
	if got := string(job.Offer.GetWorkspaceBuild().GetState()); got != "state" {
		t.Errorf("the next build begins with %q", got)
	}
	job.Finish(coderdtest.Built("state"))
}

// TestJobs checks that logs of old jobs are removed, except those of a workspace's latest build and of a template's active
// version. An import that did not become a template is removed with its archive, once; newer ones stay.
func TestJobs(t *testing.T) {
	t.Parallel()
	w, s, template := newWorld(t)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	old := w.Get(ws.ID).LatestBuild.Job.ID
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	latest := w.Get(ws.ID).LatestBuild.Job.ID
	left := w.Version(nil, &provisionerpb.ImportResult{}) // without a template
	file, dry := uuid.New(), uuid.New()
	w.Exec(`INSERT INTO files (id, sha256, mimetype, data, created_by, created_at) VALUES ($1, 'x', 'application/x-tar', '', $2, now() - interval '40 days')`, file, w.User("ann"))
	w.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
		VALUES ($1, $2, $3, 'template_version_dry_run', $4, 'succeeded', now(), now())`, dry, w.Org, w.User("ann"), file)
	w.Exec(`INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
		SELECT id, now(), 'provisioner', 'info', 'test', 'line' FROM provisioner_jobs, generate_series(1, 3)`)
	logs := func(job uuid.UUID) int {
		return count(t, w, `SELECT count(*) FROM provisioner_job_logs WHERE job_id = $1 AND output = 'line'`, job)
	}
	jobs := func() int { return count(t, w, `SELECT count(*) FROM provisioner_jobs`) }
	run := func() {
		t.Helper()
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all := jobs()
	run()
	if logs(old) != 3 || jobs() != all {
		t.Errorf("of young jobs %d lines and %d of %d jobs are left", logs(old), jobs(), all)
	}

	w.Exec(`UPDATE provisioner_jobs SET completed_at = now() - interval '31 days'`)
	// One server at a time: while another server removes data, this one changes nothing.
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(7358002)`); err != nil {
		t.Fatal(err)
	}
	run()
	if logs(old) != 3 || jobs() != all {
		t.Error("two servers remove at once")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		run()
		active := count(t, w, `SELECT count(*) FROM provisioner_job_logs l JOIN template_versions v ON v.job_id = l.job_id WHERE v.id = $1 AND output = 'line'`, template.ActiveVersionID)
		if logs(old) != 0 || logs(latest) != 3 || active != 3 {
			t.Errorf("lines left: old build %d, latest %d, active version %d; want 0, 3, 3", logs(old), logs(latest), active)
		}
		if n := count(t, w, `SELECT count(*) FROM provisioner_job_logs WHERE job_id = $1`, old); n != 1 {
			t.Errorf("%d lines in place of the old build's log, want 1", n)
		}
	}
	for what, sql := range map[string]string{
		"dry runs":             `SELECT count(*) FROM provisioner_jobs WHERE kind = 'template_version_dry_run'`,
		"imports":              `SELECT count(*) FROM template_versions WHERE template_id IS NULL`,
		"jobs of imports":      `SELECT count(*) FROM provisioner_jobs WHERE id = '` + left.Job.ID.String() + `'`,
		"archives without job": `SELECT count(*) FROM files f WHERE created_at < now() - interval '30 days' AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.file_id = f.id)`,
	} {
		if n := count(t, w, sql); n != 0 {
			t.Errorf("%d %s are left", n, what)
		}
	}
	// The remaining data still works.
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	if got := w.Get(ws.ID).LatestBuild.Status; got != sdk.WorkspaceRunning {
		t.Errorf("a build afterwards: %s", got)
	}
}

// TestLogs checks that rows of the audit log and the connection log go after their time, and that connections that are open stay.
func TestLogs(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Exec(`INSERT INTO audit_logs (id, created_at, actor, action, resource_type, resource_target, status_code)
		SELECT gen_random_uuid(), now() - n * interval '1 day', 'coder', 'write', 'template', 't', 200 FROM generate_series(0, 9) n`)
	w.Exec(`INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type)
		SELECT gen_random_uuid(), now() - n * interval '1 day', CASE WHEN n % 2 = 0 THEN now() END, gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'dev', gen_random_uuid(), 'main', 'ssh'
		FROM generate_series(0, 9) n`)
	for _, row := range []struct{ audit, connections, rows, sessions int }{{0, 0, 10, 10}, {5, 0, 5, 10}, {5, 5, 5, 8}} {
		s := retention.New(retention.Options{
			DB: w.DB, Logger: slog.New(slog.DiscardHandler),
			Limits: retention.Limits{Audit: time.Duration(row.audit) * 24 * time.Hour, Connections: time.Duration(row.connections) * 24 * time.Hour},
		})
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.Stop()
		if got := count(t, w, "SELECT count(*) FROM audit_logs"); got != row.rows {
			t.Errorf("%+v: %d rows of the audit log are left", row, got)
		}
		if got := count(t, w, "SELECT count(*) FROM connection_logs"); got != row.sessions {
			t.Errorf("%+v: %d connections are left", row, got)
		}
	}
}
