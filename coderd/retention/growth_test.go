package retention_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/retention"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

const day = 24 * time.Hour

func newService(t *testing.T, w *coderdtest.Server, limits retention.Limits) *retention.Service {
	t.Helper()
	s := retention.New(retention.Options{DB: w.DB, Logger: slog.New(slog.DiscardHandler), Limits: limits})
	t.Cleanup(s.Stop)
	return s
}

func run(t *testing.T, s *retention.Service) {
	t.Helper()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// numbers returns the numbers of a workspace's builds.
func numbers(t *testing.T, w *coderdtest.Server, workspace uuid.UUID) (numbers []int32) {
	t.Helper()
	err := w.DB.Pool.QueryRow(t.Context(), `SELECT array_agg(build_number ORDER BY build_number) FROM workspace_builds WHERE workspace_id = $1`, workspace).Scan(&numbers)
	if err != nil {
		t.Fatal(err)
	}
	return numbers
}

// TestBuilds checks that old builds go with everything that belongs to them, and that the newest of each workspace, young ones and those with
// a state stay.
func TestBuilds(t *testing.T) {
	t.Parallel()
	w, _, template := newWorld(t)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	for range 14 {
		w.Build("ann", ws.ID, sdk.TransitionStart)
		w.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	young := w.Workspace("bob", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	other := func(table string) int {
		return count(t, w, `SELECT count(*) FROM `+table+` WHERE job_id NOT IN (SELECT job_id FROM workspace_builds UNION SELECT job_id FROM template_versions)`)
	}
	w.Exec(`INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output) SELECT job_id, now(), 'provisioner', 'info', 'test', 'line' FROM workspace_builds`)
	w.Exec(`INSERT INTO workspace_build_parameters (workspace_build_id, name, value) SELECT id, 'size', 'large' FROM workspace_builds`)
	w.Exec(`UPDATE provisioner_jobs SET completed_at = now() - interval '400 days' WHERE id IN (SELECT job_id FROM workspace_builds WHERE workspace_id = $1 AND build_number <> 4)`, ws.ID)

	run(t, newService(t, w, retention.Limits{Builds: 365 * day})) // keeps all states
	if got := numbers(t, w, ws.ID); len(got) != 15 {
		t.Errorf("builds with a state were removed: %v are left", got)
	}
	run(t, newService(t, w, retention.Limits{States: 3})) // keeps all builds
	if got := numbers(t, w, ws.ID); len(got) != 15 {
		t.Errorf("builds were removed although all are kept: %v are left", got)
	}
	// The state of a build outside the newest three is there although it is old: an operator may have put it there.
	w.Exec(`UPDATE workspace_builds SET state = 'x' WHERE workspace_id = $1 AND build_number = 2`, ws.ID)
	for range 2 {
		run(t, newService(t, w, retention.Limits{Builds: 365 * day}))
		if diff := cmp.Diff([]int32{2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, numbers(t, w, ws.ID)); diff != "" {
			t.Errorf("builds (-want +got):\n%s", diff)
		}
	}
	if got := numbers(t, w, young.ID); len(got) != 1 {
		t.Errorf("a workspace with one build has %v", got)
	}
	for _, table := range []string{"provisioner_job_logs", "workspace_resources"} {
		if n := other(table); n != 0 {
			t.Errorf("%d rows of %s belong to no build", n, table)
		}
	}
	if n := count(t, w, `SELECT count(*) FROM provisioner_jobs WHERE kind = 'workspace_build'`); n != 13 {
		t.Errorf("%d jobs of builds are left, want 13", n)
	}
	// The workspace still works, and its builds are listed.
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	if got := w.Get(ws.ID).LatestBuild.BuildNumber; got != 16 {
		t.Errorf("the next build has number %d", got)
	}
}

// TestBuildsOfMany checks that a build that another transaction works on does not delay the others.
func TestBuildsOfMany(t *testing.T) {
	t.Parallel()
	w, _, template := newWorld(t)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	for range 11 {
		w.Build("ann", ws.ID, sdk.TransitionStart)
		w.Daemon().Next().Finish(coderdtest.Built("state"))
	}
	w.Exec(`UPDATE provisioner_jobs SET completed_at = now() - interval '400 days' WHERE kind = 'workspace_build'`)
	tx, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if _, err := tx.Exec(t.Context(), `SELECT FROM provisioner_jobs WHERE id = (SELECT job_id FROM workspace_builds WHERE workspace_id = $1 AND build_number = 1) FOR UPDATE`, ws.ID); err != nil {
		t.Fatal(err)
	}
	run(t, newService(t, w, retention.Limits{States: 1, Builds: 365 * day}))
	if diff := cmp.Diff([]int32{1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, numbers(t, w, ws.ID)); diff != "" {
		t.Errorf("builds (-want +got):\n%s", diff)
	}
}

// TestAgentLogs checks that the log of an agent goes when its workspace no longer has it, after a while; those of a workspace's own agents
// stay, however old, also while it is stopped and when its next start failed.
func TestAgentLogs(t *testing.T) {
	t.Parallel()
	w, _, template := newWorld(t)
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	old := uuid.New()
	w.Exec(`INSERT INTO workspace_resources (id, job_id, transition, type, name) SELECT $1, job_id, 'start', 'null_resource', 'x' FROM workspace_builds WHERE workspace_id = $2`, old, ws.ID)
	w.Exec(`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, operating_system, architecture, logs_length, created_at, last_connected_at, disconnected_at)
		VALUES ($1, $1, $2, 1, 'gone', 'linux', 'amd64', 104, now() - interval '30 days', now() - interval '9 days', now() - interval '8 days')`, old, ws.ID)
	w.Exec(`INSERT INTO workspace_agent_logs (agent_id, log_source_id, created_at, level, output) VALUES ($1, $1, now(), 'info', 'line')`, old)
	lines := func() int { return count(t, w, `SELECT count(*) FROM workspace_agent_logs WHERE agent_id = $1`, old) }
	s := newService(t, w, retention.Limits{AgentLogs: 7 * day})
	kept := func(when string) {
		t.Helper()
		run(t, s)
		if lines() != 1 {
			t.Fatalf("%s: the log is removed", when)
		}
	}
	kept("while the agent belongs to the latest build")
	w.Build("ann", ws.ID, sdk.TransitionStop)
	kept("while a stop waits")
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	kept("when the workspace has stopped")
	w.Build("ann", ws.ID, sdk.TransitionStart)
	kept("while a start waits")
	w.Daemon().Next().Finish(coderdtest.Built("state")) // without the agent
	w.Exec(`UPDATE workspace_agents SET disconnected_at = now() - interval '6 days' WHERE id = $1`, old)
	kept("less than seven days after the agent left")
	w.Exec(`UPDATE workspace_agents SET disconnected_at = now() - interval '8 days' WHERE id = $1`, old)
	run(t, newService(t, w, retention.Limits{}))
	if lines() != 1 {
		t.Fatal("the log is removed although all are kept")
	}
	run(t, s)
	if n := lines(); n != 0 {
		t.Errorf("%d lines are left", n)
	}
	if n := count(t, w, `SELECT logs_length FROM workspace_agents WHERE id = $1`, old); n != 0 {
		t.Errorf("the agent's log has a length of %d", n)
	}
}

// TestKeys checks that sessions and tokens go some time after they ended, and that those that are valid or ended recently stay.
func TestKeys(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ann := w.User("ann")
	for id, end := range map[string]string{"valid00000": "1 day", "recent0000": "-6 days", "old0000000": "-8 days", "ancient000": "-800 days"} {
		w.Exec(`INSERT INTO api_keys (id, user_id, secret_hash, name, kind, lifetime_seconds, expires_at, last_used_at)
			VALUES ($1, $2, sha256(''), $1, 'token', 60, now() + $3::interval, now() - interval '1000 days')`, id, ann, end)
	}
	mine := func() (ids []string) {
		if err := w.DB.Pool.QueryRow(t.Context(), `SELECT array_agg(id ORDER BY id) FROM api_keys WHERE lifetime_seconds = 60`).Scan(&ids); err != nil {
			t.Fatal(err)
		}
		return ids
	}
	run(t, newService(t, w, retention.Limits{}))
	if got := mine(); len(got) != 4 {
		t.Errorf("left are %q although all are kept", got)
	}
	run(t, newService(t, w, retention.Limits{Keys: 7 * day}))
	if diff := cmp.Diff([]string{"recent0000", "valid00000"}, mine()); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
}

// TestBatches checks that more rows than a batch has are removed in one run, that the metrics count them, and that a kind of data that cannot
// be removed does not keep the others.
func TestBatches(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Exec(`INSERT INTO audit_logs (id, created_at, actor, action, resource_type, resource_target, status_code)
		SELECT gen_random_uuid(), now() - interval '9 days', 'coder', 'write', 'template', 't', 200 FROM generate_series(1, 2500) n`)
	w.Exec(`INSERT INTO inbox_notifications (id, user_id, template_id, title, content, content_plain, created_at)
		SELECT gen_random_uuid(), $1, gen_random_uuid(), '', '', '', now() - n * interval '1 day' FROM generate_series(728, 731) n`, w.User("ann"))
	// The database refuses one kind of removal.
	w.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$`)
	w.Exec(`CREATE TRIGGER refuse BEFORE DELETE ON audit_logs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	s := newService(t, w, retention.Limits{Audit: 5 * day})
	if err := s.Run(t.Context()); err == nil {
		t.Error("no error although the audit log cannot be changed")
	}
	if n := count(t, w, `SELECT count(*) FROM inbox_notifications`); n != 2 {
		t.Errorf("%d unread notifications are left, want the 2 of the last two years", n)
	}
	w.Exec(`DROP TRIGGER refuse ON audit_logs`)
	run(t, s)
	if n := count(t, w, `SELECT count(*) FROM audit_logs WHERE created_at < now() - interval '5 days'`); n != 0 {
		t.Errorf("%d rows of the audit log are left", n)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()+" "+m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	want := map[string]float64{"codermesh_retention_removed_total audit log": 2500, "codermesh_retention_removed_total unread notifications": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
