-- name: CountOverview :one
-- Counts the workspaces by what their latest build left, the users by status, and the jobs that have not ended. oldest_seconds is how long the
-- oldest job in the queue has waited, 0 if none waits.
SELECT w.*, u.*,
	(SELECT count(*) FROM provisioner_jobs WHERE status = 'pending') AS waiting,
	(SELECT count(*) FROM provisioner_jobs WHERE status IN ('running', 'canceling')) AS busy,
	(SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 FROM provisioner_jobs WHERE status = 'pending') AS oldest_seconds,
	(SELECT count(*) FROM provisioner_daemons WHERE online) AS provisioners
FROM (
	SELECT count(*) AS workspaces,
		count(*) FILTER (WHERE latest_status = 'succeeded' AND latest_transition = 'start') AS running,
		count(*) FILTER (WHERE latest_status = 'succeeded' AND latest_transition <> 'start') AS stopped,
		count(*) FILTER (WHERE latest_status IN ('running', 'canceling')) AS building,
		count(*) FILTER (WHERE latest_status = 'pending') AS pending,
		count(*) FILTER (WHERE latest_status IN ('failed', 'canceled')) AS failed,
		count(*) FILTER (WHERE dormant_at IS NOT NULL) AS dormant,
		count(*) FILTER (WHERE owner_id = prebuilds_owner()) AS prebuilt
	FROM workspaces WHERE deleted_at IS NULL AND latest_build_id IS NOT NULL
) w, (
	SELECT count(*) FILTER (WHERE status = 'active') AS active_users,
		count(*) FILTER (WHERE status = 'dormant') AS dormant_users,
		count(*) FILTER (WHERE status = 'suspended') AS suspended_users,
		count(*) FILTER (WHERE last_seen_at > now() - interval '1 hour') AS seen_users
	FROM users WHERE deleted_at IS NULL
) u;

-- name: CountBuildsByDay :many
-- Counts the builds that ended on each of the given days, which follow each other; the last one goes on. day counts from 1. There is no row for a
-- day without builds.
SELECT width_bucket(j.completed_at, sqlc.arg(days)::timestamptz[])::int AS day, count(*) AS builds,
	count(*) FILTER (WHERE j.status = 'failed') AS failed, count(*) FILTER (WHERE j.status = 'canceled') AS canceled
FROM provisioner_jobs j
WHERE j.kind = 'workspace_build' AND j.completed_at >= sqlc.arg(since)::timestamptz
GROUP BY day ORDER BY day;

-- name: CountUsersByDay :many
-- Counts the users who were connected to workspaces on each of the given days, as CountBuildsByDay counts builds. A connection that is open lasts
-- until now.
WITH used AS (
	SELECT DISTINCT l.user_id, width_bucket(GREATEST(l.connect_time, sqlc.arg(since)::timestamptz), sqlc.arg(days)::timestamptz[]) AS first,
		width_bucket(COALESCE(l.disconnect_time, now()), sqlc.arg(days)::timestamptz[]) AS last
	FROM connection_logs l
	WHERE l.user_id IS NOT NULL AND l.refused = 0 AND (l.disconnect_time >= sqlc.arg(since)::timestamptz OR l.disconnect_time IS NULL)
)
SELECT seen.day::int AS day, count(*) AS users
FROM (SELECT DISTINCT used.user_id, d.day FROM used, generate_series(used.first, used.last) AS d (day)) seen
GROUP BY seen.day ORDER BY seen.day;

-- name: ListCosts :many
-- Lists what workspaces cost a day, as quotas count it (GetQuota), by template, by owner and by group; the dearest first. A workspace counts for
-- each group of its organization that its owner is in, Everyone included.
WITH costs AS MATERIALIZED (
	SELECT w.organization_id, w.template_id, w.owner_id, count(*) AS workspaces,
		count(*) FILTER (WHERE w.latest_status = 'succeeded' AND w.latest_transition = 'start') AS running,
		coalesce(sum(b.daily_cost), 0)::bigint AS daily_cost
	FROM workspaces w
	LEFT JOIN LATERAL (SELECT wb.daily_cost FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
		WHERE wb.workspace_id = w.id AND j.completed_at IS NOT NULL AND (j.status = 'succeeded' OR wb.daily_cost > 0)
		ORDER BY wb.build_number DESC LIMIT 1) b ON true
	WHERE w.deleted_at IS NULL AND w.latest_build_id IS NOT NULL
	GROUP BY w.organization_id, w.template_id, w.owner_id
), members AS (
	SELECT g.id AS group_id, m.organization_id, m.user_id FROM groups g JOIN organization_members m ON m.organization_id = g.organization_id
	WHERE g.id = g.organization_id
	UNION ALL
	SELECT g.id, m.organization_id, m.user_id FROM groups g JOIN group_members x ON x.group_id = g.id
		JOIN organization_members m ON m.organization_id = g.organization_id AND m.user_id = x.user_id
	WHERE g.id <> g.organization_id
), owners AS (
	SELECT organization_id, owner_id, sum(workspaces) AS workspaces, sum(running) AS running, sum(daily_cost) AS daily_cost
	FROM costs GROUP BY organization_id, owner_id
), sums AS (
	SELECT 'template' AS kind, t.id, t.name, t.display_name, t.organization_id, sum(c.workspaces) AS workspaces, sum(c.running) AS running,
		sum(c.daily_cost) AS daily_cost
	FROM costs c JOIN templates t ON t.id = c.template_id GROUP BY t.id
	UNION ALL
	SELECT 'user', u.id, u.username, u.name, NULL, sum(c.workspaces), sum(c.running), sum(c.daily_cost)
	FROM owners c JOIN users u ON u.id = c.owner_id GROUP BY u.id
	UNION ALL
	SELECT 'group', g.id, g.name, g.display_name, g.organization_id, sum(c.workspaces), sum(c.running), sum(c.daily_cost)
	FROM owners c JOIN members m ON m.organization_id = c.organization_id AND m.user_id = c.owner_id JOIN groups g ON g.id = m.group_id GROUP BY g.id
)
SELECT s.kind::text AS kind, s.id::uuid AS id, s.name::text AS name, s.display_name::text AS display_name, coalesce(o.name, '') AS organization_name,
	s.workspaces::bigint AS workspaces, s.running::bigint AS running, s.daily_cost::bigint AS daily_cost
FROM sums s LEFT JOIN organizations o ON o.id = s.organization_id
ORDER BY s.daily_cost DESC, s.workspaces DESC, lower(s.name), s.id;

-- name: CountAgentVersions :many
-- Counts the agents of workspaces by the version that they last connected with, which is empty for those that have not connected yet.
SELECT a.version, count(*) AS agents, count(*) FILTER (WHERE agent_status(a) = 'connected') AS connected
FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
WHERE a.token_hash IS NOT NULL
GROUP BY a.version ORDER BY agents DESC, a.version;
