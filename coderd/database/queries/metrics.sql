-- name: CountAgentsUp :many
-- Counts the connected agents of each workspace that has agents, including zeros.
SELECT u.username, w.name AS workspace_name, t.name AS template_name, v.name AS template_version,
	count(*) FILTER (WHERE agent_status(a) = 'connected') AS up
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
JOIN users u ON u.id = w.owner_id
JOIN templates t ON t.id = w.template_id
JOIN LATERAL (
	SELECT wb.template_version_id FROM workspace_builds wb WHERE wb.workspace_id = w.id ORDER BY wb.build_number DESC LIMIT 1
) b ON true
JOIN template_versions v ON v.id = b.template_version_id
WHERE a.token_hash IS NOT NULL
GROUP BY w.id, u.username, w.name, t.name, v.name;

-- name: CountLatestBuilds :many
-- Counts workspaces that are not deleted, by the outcome of their latest build.
SELECT b.status, b.transition, t.name AS template_name, v.name AS template_version, u.username, count(*) AS workspaces
FROM workspaces w
JOIN users u ON u.id = w.owner_id
JOIN templates t ON t.id = w.template_id
JOIN LATERAL (
	SELECT wb.transition, wb.template_version_id, j.status FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = w.id ORDER BY wb.build_number DESC LIMIT 1
) b ON true
JOIN template_versions v ON v.id = b.template_version_id
WHERE w.deleted_at IS NULL
GROUP BY b.status, b.transition, t.name, v.name, u.username;

-- name: CountForMetrics :one
-- Returns counts for the whole deployment.
SELECT
	(SELECT count(*) FROM users WHERE deleted_at IS NULL AND last_seen_at > now() - interval '1 hour') AS active_users,
	(SELECT count(*) FROM users WHERE deleted_at IS NULL AND status <> 'suspended') AS users,
	(SELECT count(*) FROM provisioner_jobs WHERE status = 'pending') AS jobs_pending,
	(SELECT count(*) FROM provisioner_jobs WHERE status = 'running') AS jobs_running,
	(SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM provisioner_jobs WHERE status = 'pending') AS oldest_pending,
	(SELECT count(*) FROM provisioner_daemons WHERE online) AS provisioners_online;

-- name: ListAgentsForMetrics :many
-- Lists the agents of workspaces that are not deleted, with what the API reports about their connection. startup_seconds is how long the start
-- scripts took, and -1 unless they have ended.
SELECT a.id, a.server_id, u.username, w.name AS workspace_name, a.name AS agent_name, a.lifecycle_state, t.name AS template_name, v.name AS template_version,
	coalesce(extract(epoch FROM a.ready_at - a.started_at), -1)::float8 AS startup_seconds,
	agent_status(a) AS status
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
JOIN users u ON u.id = w.owner_id
JOIN templates t ON t.id = w.template_id
JOIN template_versions v ON v.id = w.latest_version_id
WHERE a.token_hash IS NOT NULL;

-- name: ListAppsForMetrics :many
-- Lists the apps with a health check of workspaces that are not deleted.
SELECT u.username, w.name AS workspace_name, a.name AS agent_name, p.slug, p.health
FROM workspace_apps p
JOIN workspace_agents a ON a.id = p.agent_id AND a.token_hash IS NOT NULL
JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
JOIN users u ON u.id = w.owner_id
WHERE p.health <> 'disabled';

-- name: GetEndedJob :one
-- Returns what the metrics of jobs need about a job that has ended. Transition and template are empty for an import of a version that no
-- template has yet, and transition and what belongs to the workspace for everything but builds.
SELECT j.status, j.created_at, j.started_at, j.completed_at, coalesce(b.transition, '') AS transition, coalesce(t.name, '') AS template_name,
	coalesce(v.name, '') AS version_name, coalesce(w.name, '') AS workspace_name, coalesce(u.username, '') AS owner_name,
	coalesce(o.name, '') AS organization_name, coalesce(p.name, '') AS preset_name, coalesce(b.build_number, 0)::integer AS build_number,
	coalesce(w.owner_id = prebuilds_owner(), false)::boolean AS prebuilt,
	EXISTS (SELECT FROM prebuilt_workspaces c WHERE c.workspace_id = b.workspace_id AND c.claim_build_id = b.id) AS claims
FROM provisioner_jobs j
LEFT JOIN workspace_builds b ON b.job_id = j.id
LEFT JOIN template_versions v ON v.id = b.template_version_id
LEFT JOIN templates t ON t.id = v.template_id
LEFT JOIN workspaces w ON w.id = b.workspace_id
LEFT JOIN users u ON u.id = w.owner_id
LEFT JOIN organizations o ON o.id = w.organization_id
LEFT JOIN template_version_presets p ON p.id = b.template_version_preset_id
WHERE j.id = $1 AND j.completed_at IS NOT NULL;
