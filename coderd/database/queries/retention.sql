-- name: TryRetentionLock :one
-- Reports whether this transaction may remove old data: one at a time, across all servers.
SELECT pg_try_advisory_xact_lock(7358002);

-- name: RemoveOldStates :execrows
-- Removes the states of builds that are not among the newest of their workspace. It never removes the latest build's, with which the
-- next build begins.
UPDATE workspace_builds SET state = '', state_removed_at = now() WHERE id IN (
	SELECT b.id FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id
	WHERE b.state <> '' AND b.build_number <= w.latest_build_number - GREATEST(sqlc.arg(kept)::int, 1)
	LIMIT sqlc.arg(max_rows)
);

-- name: RemoveOldJobLogs :execrows
-- Replaces the logs of jobs that ended before a time by one line that reports it. It keeps those of workspaces' latest builds and of the
-- imports of active template versions.
WITH old AS (
	SELECT j.id FROM provisioner_jobs j
	WHERE j.completed_at < sqlc.arg(before)::timestamptz AND j.logs_removed_at IS NULL
		AND NOT EXISTS (SELECT FROM workspace_builds b JOIN workspaces w ON w.latest_build_id = b.id WHERE b.job_id = j.id AND w.deleted_at IS NULL)
		AND NOT EXISTS (SELECT FROM template_versions v JOIN templates t ON t.active_version_id = v.id WHERE v.job_id = j.id AND t.deleted_at IS NULL)
	ORDER BY j.completed_at LIMIT sqlc.arg(max_rows)
), removed AS (
	DELETE FROM provisioner_job_logs l USING old WHERE l.job_id = old.id
), said AS (
	INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
	SELECT old.id, now(), 'provisioner_daemon', 'info', 'Retention', 'The log of this job was removed after its time.' FROM old
)
UPDATE provisioner_jobs SET logs_removed_at = now() FROM old WHERE provisioner_jobs.id = old.id;

-- name: DeleteOldDryRuns :execrows
-- Deletes dry runs that ended before a time, with their results.
DELETE FROM provisioner_jobs WHERE id IN (
	SELECT j.id FROM provisioner_jobs j WHERE j.kind = 'template_version_dry_run' AND j.completed_at < sqlc.arg(before)::timestamptz LIMIT sqlc.arg(max_rows)
);

-- name: DeleteOldImports :execrows
-- Deletes imports that ended before a time and whose version belongs to no template.
WITH old AS (
	SELECT v.id, v.job_id FROM template_versions v JOIN provisioner_jobs j ON j.id = v.job_id
	WHERE v.template_id IS NULL AND j.completed_at < sqlc.arg(before)::timestamptz
		AND NOT EXISTS (SELECT FROM workspace_builds b WHERE b.template_version_id = v.id)
	LIMIT sqlc.arg(max_rows) FOR UPDATE OF v SKIP LOCKED
), gone AS (
	DELETE FROM template_versions v USING old WHERE v.id = old.id AND v.template_id IS NULL
)
DELETE FROM provisioner_jobs USING old WHERE provisioner_jobs.id = old.job_id;

-- name: DeleteOldFiles :execrows
-- Deletes archives that were uploaded before a time and that no job refers to.
DELETE FROM files WHERE id IN (
	SELECT f.id FROM files f
	WHERE f.created_at < sqlc.arg(before)::timestamptz AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.file_id = f.id)
	LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED
);

-- name: DeleteOldBuilds :execrows
-- Deletes builds that ended before a time, with their jobs, resources and agents. It keeps the newest of each workspace and every build
-- that still has a state.
WITH old AS (
	SELECT b.id, b.job_id FROM provisioner_jobs j
	JOIN workspace_builds b ON b.job_id = j.id
	JOIN workspaces w ON w.id = b.workspace_id
	WHERE j.kind = 'workspace_build' AND j.completed_at < sqlc.arg(before)::timestamptz AND b.state = ''
		AND b.build_number <= w.latest_build_number - GREATEST(sqlc.arg(kept)::int, 1)
	ORDER BY j.completed_at LIMIT sqlc.arg(max_rows) FOR UPDATE OF j SKIP LOCKED
), gone AS (
	DELETE FROM workspace_builds b USING old WHERE b.id = old.id
)
DELETE FROM provisioner_jobs USING old WHERE provisioner_jobs.id = old.job_id;

-- name: DeleteOldAgentLogs :execrows
-- Deletes the logs of agents that were last connected before a time and that their workspace no longer has: a later build started it
-- without them, or deleted it. It returns the number of agents.
WITH old AS (
	SELECT a.id FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id
	WHERE a.logs_length > 0 AND a.build_number < w.latest_build_number AND w.latest_status = 'succeeded' AND w.latest_transition IN ('start', 'delete')
		AND GREATEST(a.created_at, a.last_connected_at, a.disconnected_at) < sqlc.arg(before)::timestamptz
	LIMIT sqlc.arg(max_rows) FOR UPDATE OF a SKIP LOCKED
), gone AS (
	DELETE FROM workspace_agent_logs l USING old WHERE l.agent_id = old.id
)
UPDATE workspace_agents SET logs_length = 0 FROM old WHERE workspace_agents.id = old.id;

-- name: DeleteOldKeys :execrows
-- Deletes sessions and tokens that ended before a time.
DELETE FROM api_keys WHERE id IN (
	SELECT k.id FROM api_keys k WHERE k.expires_at < sqlc.arg(before)::timestamptz ORDER BY k.expires_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED
);

-- name: DeleteForgottenInbox :execrows
-- Deletes notifications that were never read and were created before a time.
DELETE FROM inbox_notifications WHERE id IN (
	SELECT id FROM inbox_notifications WHERE read_at IS NULL AND created_at < sqlc.arg(before)::timestamptz ORDER BY created_at LIMIT sqlc.arg(max_rows)
	FOR UPDATE SKIP LOCKED
);
