package coderdtest

import (
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// The functions in this file write rows without a provisioner and without the services above the one under test: a job
// has the status that the test gives it.

// Counts is a check for testwait.Until: a query returns the number n.
func (s *Rows) Counts(n int, sql string, args ...any) func() error {
	return func() error {
		var got int
		if err := s.DB.Pool.QueryRow(s.T.Context(), sql, args...).Scan(&got); err != nil {
			return err
		}
		return testwait.Equal(got, n)
	}
}

// Blocked is a check for testwait.Until: a transaction of the database waits for another's lock.
func (s *Rows) Blocked() error {
	return s.Counts(1, `SELECT least(count(*), 1) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)()
}

// JobRow writes a job of ann's with an empty source archive.
func (s *Rows) JobRow(kind sdk.JobType, status sdk.JobStatus) uuid.UUID {
	s.T.Helper()
	id, file := uuid.New(), s.File("ann")
	s.Exec(`INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at)
		VALUES ($1, $2, $3, $4, $5, $6, CASE WHEN $6 <> 'pending' THEN now() END, CASE WHEN $7 THEN now() END)`,
		id, s.Org, s.User("ann"), string(kind), file, string(status), status.Ended())
	return id
}

// SetJobRow gives a job another status.
func (s *Rows) SetJobRow(id uuid.UUID, status sdk.JobStatus) {
	s.T.Helper()
	s.Exec(`UPDATE provisioner_jobs SET status = $2, started_at = coalesce(started_at, now()), completed_at = CASE WHEN $3 THEN now() END WHERE id = $1`,
		id, string(status), status.Ended())
}

// TemplateRow writes a template with one version, and returns both ids.
func (s *Rows) TemplateRow() (template, version uuid.UUID) {
	s.T.Helper()
	template, version = uuid.New(), uuid.New()
	s.Exec(`INSERT INTO template_versions (id, organization_id, job_id, name, created_by) VALUES ($1, $2, $3, 'v1', $4)`,
		version, s.Org, s.JobRow(sdk.JobTemplateImport, sdk.JobSucceeded), s.User("ann"))
	s.Exec(`INSERT INTO templates (id, organization_id, name, active_version_id, created_by, sharing) VALUES ($1, $2, $3, $4, $5, jsonb_build_object($2::uuid, 'use'))`,
		template, s.Org, "t-"+template.String()[:8], version, s.User("ann"))
	return template, version
}

// WorkspaceRow writes a workspace without builds, with its own template.
func (s *Rows) WorkspaceRow(owner, name string) uuid.UUID {
	s.T.Helper()
	id := uuid.New()
	template, _ := s.TemplateRow()
	s.Exec(`INSERT INTO workspaces (id, organization_id, owner_id, template_id, name) VALUES ($1, $2, $3, $4, $5)`, id, s.Org, s.User(owner), template, name)
	return id
}

// Build is a build that BuildRow has written.
type Build struct {
	Workspace, Job uuid.UUID
	Number         int32
	Transition     sdk.Transition
}

// BuildRow writes the next build of a workspace, which its owner asked for.
func (s *Rows) BuildRow(workspace uuid.UUID, transition sdk.Transition, status sdk.JobStatus) Build {
	s.T.Helper()
	b := Build{Workspace: workspace, Job: s.JobRow(sdk.JobWorkspaceBuild, status), Transition: transition}
	if err := s.DB.Pool.QueryRow(s.T.Context(), `INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id)
		SELECT $1, $2, 1 + (SELECT coalesce(max(build_number), 0) FROM workspace_builds WHERE workspace_id = $2), t.active_version_id, $3, $4, w.owner_id
		FROM workspaces w JOIN templates t ON t.id = w.template_id WHERE w.id = $2 RETURNING build_number`,
		uuid.New(), workspace, b.Job, string(transition)).Scan(&b.Number); err != nil {
		s.T.Fatal(err)
	}
	return b
}

// RunningRow writes a running workspace with an agent called main.
func (s *Rows) RunningRow(owner, name string) (workspace, agent uuid.UUID) {
	s.T.Helper()
	workspace = s.WorkspaceRow(owner, name)
	return workspace, s.AgentRow(s.BuildRow(workspace, sdk.TransitionStart, sdk.JobSucceeded))
}

// AgentRow writes an agent called main for a build.
func (s *Rows) AgentRow(b Build) uuid.UUID {
	s.T.Helper()
	resource, agent := uuid.New(), uuid.New()
	s.Exec(`INSERT INTO workspace_resources (id, job_id, transition, type, name) VALUES ($1, $2, $3, 'x', 'y')`, resource, b.Job, string(b.Transition))
	s.Exec(`INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash) VALUES ($1, $2, $3, $4, 'main', $5)`,
		agent, resource, b.Workspace, b.Number, Token(agent).Hash())
	return agent
}
