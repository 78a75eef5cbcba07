-- name: InsertWorkspacePlan :exec
INSERT INTO workspace_plans (job_id, workspace_id) VALUES ($1, $2);

-- name: GetWorkspacePlan :one
-- Returns a plan of a workspace, and the input of its job.
SELECT p.job_id, p.workspace_id, p.changes, j.input, j.organization_id FROM workspace_plans p JOIN provisioner_jobs j ON j.id = p.job_id
WHERE p.job_id = $1 AND p.workspace_id = $2;

-- name: LockOpenPlans :many
-- Locks the jobs of a workspace's plans that have not ended.
SELECT j.* FROM workspace_plans p JOIN provisioner_jobs j ON j.id = p.job_id
WHERE p.workspace_id = $1 AND j.status IN ('pending', 'running', 'canceling') ORDER BY j.created_at, j.id FOR UPDATE OF j;

-- name: UpdateWorkspacePlan :exec
UPDATE workspace_plans SET changes = $2 WHERE job_id = $1;

-- name: GetCreatedResources :one
-- Returns the addresses of the resources that a stop created.
SELECT created_resources FROM workspace_builds WHERE id = $1;
