-- +goose Up

-- Plans of updates of workspaces: dry runs that begin with the workspace's state. changes is null until the plan has
-- succeeded, and has names only, no values. Retention deletes the job, and with it the plan.
CREATE TABLE workspace_plans (
	job_id uuid PRIMARY KEY REFERENCES provisioner_jobs (id) ON DELETE CASCADE,
	workspace_id uuid NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
	changes jsonb
);
CREATE INDEX workspace_plans_workspace_id ON workspace_plans (workspace_id);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
