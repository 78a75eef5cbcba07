-- name: InsertBuild :one
-- Copies the previous build's state, so that it is kept even if this job never reports one.
INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, reason, initiator_id, log_level, state, max_deadline, provisioner_tags, template_version_preset_id)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,
	COALESCE(sqlc.narg(state)::bytea, (SELECT p.state FROM workspace_builds p WHERE p.workspace_id = $2 ORDER BY p.build_number DESC LIMIT 1), ''), $10, $11, $12)
RETURNING id;

-- name: GetBuild :one
-- Returns everything except the state.
SELECT id, workspace_id, build_number, template_version_id, job_id, transition, reason, initiator_id, log_level, deadline, max_deadline, created_at
FROM workspace_builds WHERE id = $1;

-- name: GetBuildByJob :one
SELECT id, workspace_id, build_number, template_version_id, job_id, transition, reason, initiator_id, log_level, deadline, max_deadline, created_at
FROM workspace_builds WHERE job_id = $1;

-- name: GetLatestBuild :one
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.deadline, b.max_deadline, j.status AS job_status
FROM workspace_builds b JOIN provisioner_jobs j ON j.id = b.job_id
WHERE b.workspace_id = $1 ORDER BY b.build_number DESC LIMIT 1;

-- name: ListBuildRows :many
-- Lists what the JSON of builds shows in addition to their jobs and resources, newest first. A page_limit of 0 means all.
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.initiator_id, b.daily_cost,
	b.template_version_preset_id, b.deadline, b.max_deadline, b.created_at, b.updated_at, b.unknown_resources, b.tainted_resources, b.explanation, v.name AS template_version_name, w.name AS workspace_name,
	w.owner_id AS workspace_owner_id, w.deleted_at AS workspace_deleted_at, ou.username AS workspace_owner_name, ou.name AS workspace_owner_full_name,
	iu.username AS initiator_name, j.status AS job_status, j.started_at AS job_started_at
FROM workspace_builds b
JOIN template_versions v ON v.id = b.template_version_id
JOIN workspaces w ON w.id = b.workspace_id
JOIN users ou ON ou.id = w.owner_id
JOIN users iu ON iu.id = b.initiator_id
JOIN provisioner_jobs j ON j.id = b.job_id
WHERE (sqlc.narg(ids)::uuid[] IS NULL OR b.id = ANY (sqlc.narg(ids)::uuid[]))
	AND (sqlc.narg(workspace_id)::uuid IS NULL OR b.workspace_id = sqlc.narg(workspace_id))
	AND (sqlc.narg(build_number)::int IS NULL OR b.build_number = sqlc.narg(build_number))
	AND (sqlc.narg(since)::timestamptz IS NULL OR b.created_at >= sqlc.narg(since))
ORDER BY b.created_at DESC, b.build_number DESC
LIMIT NULLIF(sqlc.arg(page_limit)::int, 0) OFFSET sqlc.arg(page_offset)::int;

-- name: GetBuildState :one
SELECT state FROM workspace_builds WHERE id = $1;

-- name: GetStateRemoved :one
-- Returns when retention removed the state; null if it did not.
SELECT state_removed_at FROM workspace_builds WHERE id = $1;

-- name: GetBuildTags :one
-- Returns the provisioner tags that the build itself asked for.
SELECT provisioner_tags FROM workspace_builds WHERE id = $1;

-- name: UpdateBuildState :exec
UPDATE workspace_builds SET state = $2, updated_at = now() WHERE id = $1;

-- name: UpdateBuildUnsettled :exec
-- Stores the resources that the build, or an earlier one, began to change and left unsettled.
UPDATE workspace_builds SET unknown_resources = sqlc.arg(unknown)::text[], tainted_resources = sqlc.arg(tainted)::text[] WHERE id = $1;

-- name: GetUnsettledBefore :one
-- Returns what the build before the given number left unsettled.
SELECT unknown_resources, tainted_resources FROM workspace_builds WHERE workspace_id = $1 AND build_number < $2 ORDER BY build_number DESC LIMIT 1;

-- name: UpdateBuildDeadline :exec
UPDATE workspace_builds SET deadline = $2, updated_at = now() WHERE id = $1;

-- name: UpdateBuildCost :exec
UPDATE workspace_builds SET daily_cost = $2, updated_at = now() WHERE id = $1;

-- name: InsertBuildParameters :exec
INSERT INTO workspace_build_parameters (workspace_build_id, name, value)
SELECT sqlc.arg(workspace_build_id)::uuid, unnest(sqlc.arg(names)::text[]), unnest(sqlc.arg(parameter_values)::text[]);

-- name: ListBuildParameters :many
SELECT name, value FROM workspace_build_parameters WHERE workspace_build_id = $1 ORDER BY name;

-- name: ListPreviousBuildParameters :many
-- Returns the parameters of the build before the given number.
SELECT p.name, p.value FROM workspace_build_parameters p JOIN workspace_builds b ON b.id = p.workspace_build_id
WHERE b.workspace_id = $1 AND b.build_number = (SELECT max(x.build_number) FROM workspace_builds x WHERE x.workspace_id = $1 AND x.build_number < $2)
ORDER BY p.name;
