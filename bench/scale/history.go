package main

import (
	"context"
	"fmt"
	"time"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// history measures requests in a database with many workspaces, ten builds of each, and their logs.
func (b *bench) history(ctx context.Context) error {
	d, err := b.deployment(ctx)
	if err != nil {
		return err
	}
	stop, err := d.provisioners(ctx, 1, 1)
	if err != nil {
		return err
	}
	defer stop()
	if _, err := d.workspace(ctx, d.admin, "first"); err != nil {
		return err
	}
	if err := until(ctx, slow, "run the build", func() (bool, error) { n, err := d.pending(ctx); return n == 0, err }); err != nil {
		return err
	}
	began := time.Now()
	if err := d.seed(ctx, b.workspaces, b.logLines); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	var size int64
	if err := d.db.Pool.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size); err != nil {
		return err
	}
	b.info("large database", float64(size)/1e9, "GB", fmt.Sprintf("%d workspaces, %d builds, %d log lines, written in %.0f s", b.workspaces, 10*b.workspaces, b.logLines, time.Since(began).Seconds()))
	for _, request := range []struct {
		name string
		do   func() error
	}{
		{"list: first page of 25", func() error {
			_, err := d.admin.Workspaces(ctx, sdk.WorkspacesQuery{Limit: 25})
			return err
		}},
		{"list: last page of 25", func() error {
			_, err := d.admin.Workspaces(ctx, sdk.WorkspacesQuery{Limit: 25, Offset: b.workspaces - 25})
			return err
		}},
		{"list: search by name", func() error {
			_, err := d.admin.Workspaces(ctx, sdk.WorkspacesQuery{Q: "name:s77", Limit: 25})
			return err
		}},
		{"dashboard: own workspaces", func() error {
			_, err := d.admin.Workspaces(ctx, sdk.WorkspacesQuery{Q: "owner:me", Limit: 25})
			return err
		}},
		{"dashboard: templates", func() error {
			_, err := d.admin.OrganizationTemplates(ctx, sdk.DefaultOrganization, "")
			return err
		}},
		{"dashboard: jobs", func() error {
			_, err := d.admin.ProvisionerJobs(ctx, sdk.DefaultOrganization, sdk.JobsQuery{Limit: 25})
			return err
		}},
	} {
		const runs = 15
		var times []time.Duration
		for range runs {
			began := time.Now()
			if err := request.do(); err != nil {
				return fmt.Errorf("%s: %w", request.name, err)
			}
			times = append(times, time.Since(began))
		}
		b.atMost(request.name, milliseconds(quantile(times, 0.5)), "ms", 100,
			fmt.Sprintf("median of %d, slowest %.3g", runs, milliseconds(times[runs-1])))
	}
	return b.dispatch(ctx, d)
}

// seed copies the newest workspace and its build, agent and log.
func (d *deployment) seed(ctx context.Context, workspaces, lines int) error {
	organization, admin, err := d.organization(ctx)
	if err != nil {
		return err
	}
	conn, err := d.db.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{`SET statement_timeout = 0`, nil},
		{`SET session_replication_role = replica`, nil}, // no triggers: 100 000 announcements would only measure themselves
		{`INSERT INTO users (id, username, email) SELECT md5(n::text)::uuid, 'seeded' || n, 'seeded' || n || '@example.com' FROM generate_series(0, 999) n`, nil},
		{`INSERT INTO organization_members (organization_id, user_id) SELECT $1, md5(n::text)::uuid FROM generate_series(0, 999) n`, []any{organization}},
		{`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name)
			SELECT md5('w' || n)::uuid, $1, md5((n % 1000)::text)::uuid, $2, 's' || n FROM generate_series(1, $3) n`, []any{organization, d.template.ID, workspaces}},
		{`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, created_at, started_at, completed_at)
			SELECT md5('j' || n || '/' || k)::uuid, $1, $2, 'workspace_build', f.id, 'succeeded', at, at, at
			FROM generate_series(1, $3) n, generate_series(1, 10) k, LATERAL (SELECT now() - make_interval(days => 11 - k) AS at) t, (SELECT id FROM files LIMIT 1) f`, []any{organization, admin, workspaces}},
		{`INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
			SELECT md5('b' || n || '/' || k)::uuid, md5('w' || n)::uuid, k, $1, md5('j' || n || '/' || k)::uuid, 'start', $2
			FROM generate_series(1, $3) n, generate_series(1, 10) k`, []any{d.template.ActiveVersionID, admin, workspaces}},
		{`INSERT INTO workspace_resources (id, job_id, transition, type, name)
			SELECT md5('r' || n)::uuid, md5('j' || n || '/10')::uuid, 'start', 'terraform_data', 'dev' FROM generate_series(1, $1) n`, []any{workspaces}},
		{`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name)
			SELECT md5('a' || n)::uuid, md5('r' || n)::uuid, md5('w' || n)::uuid, 10, 'main' FROM generate_series(1, $1) n`, []any{workspaces}},
		{`INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
			SELECT md5('j' || 1 + n % $1 || '/' || 1 + n / $1 % 10)::uuid, now(), 'provisioner', 'info', 'Starting workspace', 'terraform_data.dev: Still creating...' || n
			FROM generate_series(1, $2::bigint) n`, []any{workspaces, lines}},
		{`UPDATE workspaces w SET latest_build_id = b.id, latest_build_number = 10, latest_deadline = b.deadline
			FROM workspace_builds b WHERE b.workspace_id = w.id AND b.build_number = 10 AND w.name ~ '^s[0-9]+$'`, nil},
		{`VACUUM ANALYZE`, nil},
		{`RESET session_replication_role`, nil},
		{`RESET statement_timeout`, nil},
	} {
		if _, err := conn.Exec(ctx, step.sql, step.args...); err != nil {
			return fmt.Errorf("%.60s: %w", step.sql, err)
		}
	}
	return nil
}
