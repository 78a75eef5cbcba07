package coderdtest

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Size is how much Seed writes.
type Size struct {
	Users, Workspaces int
	Builds            int // of all workspaces together, with a job and a resource each
	Lines             int // of all builds' logs together
	Logged            int // rows of the audit log, and of the connection log
}

// Seed writes the rows of a deployment that has run for a long time, by SQL and without triggers, and updates
// PostgreSQL's statistics, so that it plans queries as in production. Users are called user1, user2, …; workspace n is
// called ws<n> and belongs to user <n modulo Users>. Workspaces have a template of 20 and an agent each; one of 50 is
// shared with user1.
func (s *Rows) Seed(n Size) {
	s.T.Helper()
	file := s.File("tom")
	ctx := context.WithoutCancel(s.T.Context())
	conn, err := pgx.ConnectConfig(ctx, s.DB.Pool.Config().ConnConfig)
	if err != nil {
		s.T.Fatal(err)
	}
	defer conn.Close(ctx)
	run := func(sql string, args ...any) {
		s.T.Helper()
		if _, err := conn.Exec(ctx, sql, args...); err != nil {
			s.T.Fatalf("%s: %v", sql, err)
		}
	}
	run("SET session_replication_role = replica")
	run("SET statement_timeout = 0")
	run(`CREATE FUNCTION pg_temp.id(kind text, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT md5(kind || n)::uuid $$`)
	run(`INSERT INTO users (id, username, email, last_seen_at) SELECT pg_temp.id('user', n), 'user' || n, 'user' || n || '@example.com', now() FROM generate_series(1, $1::int) n`, n.Users)
	run(`INSERT INTO organization_members (organization_id, user_id) SELECT $1, pg_temp.id('user', n) FROM generate_series(1, $2::int) n`, s.Org, n.Users)
	run(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
		SELECT pg_temp.id('import', n), $1, $2, 'template_version_import', $3, 'succeeded', now(), now() FROM generate_series(1, 20) n`, s.Org, s.User("tom"), file)
	run(`INSERT INTO template_versions (id, organization_id, template_id, job_id, name, created_by)
		SELECT pg_temp.id('version', n), $1, pg_temp.id('template', n), pg_temp.id('import', n), 'v1', $2 FROM generate_series(1, 20) n`, s.Org, s.User("tom"))
	run(`INSERT INTO templates (id, organization_id, name, active_version_id, created_by, sharing)
		SELECT pg_temp.id('template', n), $1, 'template' || n, pg_temp.id('version', n), $2, jsonb_build_object($1::uuid, 'use') FROM generate_series(1, 20) n`, s.Org, s.User("tom"))
	run(`INSERT INTO template_policies (template_id) SELECT pg_temp.id('template', n) FROM generate_series(1, 20) n`)
	each := n.Builds / n.Workspaces
	run(`INSERT INTO workspaces (id, organization_id, owner_id, owner_key, template_id, name, sharing, latest_build_id, latest_build_number, latest_version_id, latest_transition,
			latest_reason, latest_status, latest_ended_at)
		SELECT pg_temp.id('workspace', n), $1, pg_temp.id('user', 1 + n % $3::int), 'user' || 1 + n % $3::int, pg_temp.id('template', 1 + n % 20), 'ws' || n,
			CASE WHEN n % 50 = 0 THEN jsonb_build_object(pg_temp.id('user', 1), 'use') ELSE '{}' END,
			pg_temp.id('build', n::bigint * $4::int), $4, pg_temp.id('version', 1 + n % 20), CASE WHEN n % 3 = 0 THEN 'stop' ELSE 'start' END, 'initiator', 'succeeded', now()
		FROM generate_series(1, $2::int) n`, s.Org, n.Workspaces, n.Users, each)
	run(`INSERT INTO workspace_policy (workspace_id, look_at) SELECT id, 'infinity' FROM workspaces`)
	run(`INSERT INTO provisioner_daemons (id, organization_id, name, built_in, tags) VALUES (pg_temp.id('daemon', 1), $1, 'seeded', true, '{"scope": "organization", "owner": ""}')`, s.Org)
	// Build b is number 1 + (b-1) % each of workspace 1 + (b-1) / each; the last one of workspace n has the number n *
	// each.
	run(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, tags, status, created_at, started_at, completed_at, worker_id, epoch, log_length)
		SELECT pg_temp.id('job', b), $1, pg_temp.id('user', 1 + (1 + (b - 1) / $4::int) % $5::int), 'workspace_build', $2, '{"scope": "organization", "owner": ""}',
			'succeeded', at, at, at + interval '8 seconds', pg_temp.id('daemon', 1), 1, 100
		FROM (SELECT b, now() - ($4::int - (b - 1) % $4::int) * interval '1 day' - b * interval '1 second' AS at FROM generate_series(1, $3::int) b) jobs`,
		s.Org, file, each*n.Workspaces, each, n.Users)
	run(`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id, created_at, updated_at)
		SELECT pg_temp.id('build', b), pg_temp.id('workspace', w), number, pg_temp.id('version', 1 + w % 20), pg_temp.id('job', b),
			CASE WHEN ($2::int - number + CASE WHEN w % 3 = 0 THEN 1 ELSE 0 END) % 2 = 0 THEN 'start' ELSE 'stop' END, pg_temp.id('user', 1 + w % $3::int), at, at
		FROM (SELECT b, 1 + (b - 1) / $2::int AS w, 1 + (b - 1) % $2::int AS number, now() - ($2::int - (b - 1) % $2::int) * interval '1 day' - b * interval '1 second' AS at
			FROM generate_series(1, $1::int) b) builds`, each*n.Workspaces, each, n.Users)
	run(`INSERT INTO workspace_resources (id, job_id, transition, type, name)
		SELECT pg_temp.id('resource', b), pg_temp.id('job', b), 'start', 'docker_container', 'workspace' FROM generate_series(1, $1::int) b`, each*n.Workspaces)
	run(`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash, lifecycle_state, first_connected_at, last_connected_at)
		SELECT pg_temp.id('agent', w), pg_temp.id('resource', w::bigint * $2::int), pg_temp.id('workspace', w), $2, 'main', sha256(w::text::bytea), 'ready', now(), now()
		FROM generate_series(1, $1::int) w`, n.Workspaces, each)
	run(`INSERT INTO workspace_apps (id, agent_id, slug) SELECT pg_temp.id('app', w), pg_temp.id('agent', w), 'code' FROM generate_series(1, $1::int) w`, n.Workspaces)
	const batch = 1_000_000
	for from := 0; from < n.Lines; from += batch {
		run(`INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
			SELECT pg_temp.id('job', 1 + l / greatest($3::int, 1)), now(), 'provisioner', 'info', 'Starting workspace', 'docker_container.workspace: Creating... line ' || l
			FROM generate_series($1::int, $2::int - 1) l`, from, min(from+batch, n.Lines), n.Lines/(each*n.Workspaces))
	}
	run(`INSERT INTO audit_logs (id, actor, user_id, action, resource_type, resource_id, resource_target, organization_id, status_code, created_at)
		SELECT pg_temp.id('audit', n), 'user' || 1 + n % $3::int, pg_temp.id('user', 1 + n % $3::int), (ARRAY['create', 'write', 'delete', 'start', 'stop'])[1 + n % 5], 'workspace',
			pg_temp.id('workspace', 1 + n % $4::int), 'ws' || 1 + n % $4::int, $2, 200, now() - n * interval '1 second'
		FROM generate_series(1, $1::int) n`, n.Logged, s.Org, n.Users, n.Workspaces)
	run(`INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, user_id)
		SELECT pg_temp.id('connection', n), at, at + interval '1 minute', $2, pg_temp.id('user', 1 + w % $3::int), pg_temp.id('workspace', w), 'ws' || w, pg_temp.id('agent', w), 'main',
			(ARRAY['ssh', 'vscode', 'workspace_app'])[1 + n % 3], pg_temp.id('user', 1 + w % $3::int)
		FROM (SELECT n, 1 + n % $4::int AS w, now() - n * interval '1 second' AS at FROM generate_series(1, $1::int) n) rows`, n.Logged, s.Org, n.Users, n.Workspaces)
	run("VACUUM ANALYZE")
}
