-- name: CountActiveUsers :many
-- Counts the users who were connected to workspaces of some templates (null: of all) in each interval of a period. An interval without any
-- is left out. A connection that is open lasts until now.
WITH used AS (
	SELECT l.user_id,
		floor(extract(epoch FROM GREATEST(l.connect_time, sqlc.arg(since)::timestamptz) - sqlc.arg(since)::timestamptz) / sqlc.arg(step_seconds)::int)::int AS first,
		floor(extract(epoch FROM LEAST(COALESCE(l.disconnect_time, now()), sqlc.arg(until)::timestamptz - interval '1 microsecond') - sqlc.arg(since)::timestamptz) / sqlc.arg(step_seconds)::int)::int AS last
	FROM connection_logs l JOIN workspaces w ON w.id = l.workspace_id
	WHERE l.user_id IS NOT NULL AND l.refused = 0 AND l.connect_time < sqlc.arg(until)::timestamptz AND (l.disconnect_time >= sqlc.arg(since)::timestamptz OR l.disconnect_time IS NULL)
		AND (sqlc.narg(template_ids)::uuid[] IS NULL OR w.template_id = ANY (sqlc.narg(template_ids)::uuid[]))
)
SELECT i.step::int AS step, count(DISTINCT used.user_id) AS users FROM used, generate_series(used.first, used.last) AS i (step) GROUP BY i.step ORDER BY i.step;

-- name: ListUserActivity :many
-- Lists how long users were connected to workspaces of some templates in a period. Of connections at the same time, each counts only beyond
-- the end of all that began before it.
WITH used AS (
	SELECT l.user_id, w.template_id, GREATEST(l.connect_time, sqlc.arg(since)::timestamptz) AS began, LEAST(COALESCE(l.disconnect_time, now()), sqlc.arg(until)::timestamptz) AS ended
	FROM connection_logs l JOIN workspaces w ON w.id = l.workspace_id
	WHERE l.user_id IS NOT NULL AND l.refused = 0 AND l.connect_time < sqlc.arg(until)::timestamptz AND (l.disconnect_time >= sqlc.arg(since)::timestamptz OR l.disconnect_time IS NULL)
		AND w.template_id = ANY (sqlc.arg(template_ids)::uuid[])
), counted AS (
	SELECT user_id, template_id, began, ended,
		max(ended) OVER (PARTITION BY user_id ORDER BY began, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered
	FROM used
)
SELECT u.id AS user_id, u.username, array_agg(DISTINCT c.template_id)::uuid[] AS template_ids,
	floor(sum(GREATEST(extract(epoch FROM c.ended - GREATEST(c.began, COALESCE(c.covered, c.began))), 0)))::bigint AS seconds
FROM counted c JOIN users u ON u.id = c.user_id
GROUP BY u.id, u.username
ORDER BY seconds DESC, lower(u.username), u.id;

-- name: ListAppUsage :many
-- Lists how long, and how often, users were connected to workspaces of some templates in a period, by the way in which they were. A user's
-- connections at the same time and in the same way count as in ListUserActivity.
WITH used AS (
	SELECT l.user_id, w.template_id, l.type, CASE WHEN l.type = 'workspace_app' THEN l.slug_or_port ELSE '' END AS slug,
		GREATEST(l.connect_time, sqlc.arg(since)::timestamptz) AS began, LEAST(COALESCE(l.disconnect_time, now()), sqlc.arg(until)::timestamptz) AS ended
	FROM connection_logs l JOIN workspaces w ON w.id = l.workspace_id
	WHERE l.user_id IS NOT NULL AND l.refused = 0 AND l.connect_time < sqlc.arg(until)::timestamptz AND (l.disconnect_time >= sqlc.arg(since)::timestamptz OR l.disconnect_time IS NULL)
		AND w.template_id = ANY (sqlc.arg(template_ids)::uuid[])
), counted AS (
	SELECT type, slug, template_id, began, ended,
		max(ended) OVER (PARTITION BY user_id, type, slug ORDER BY began, ended ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS covered
	FROM used
)
SELECT c.type, c.slug::text AS slug, array_agg(DISTINCT c.template_id)::uuid[] AS template_ids, count(*) AS times_used,
	floor(sum(GREATEST(extract(epoch FROM c.ended - GREATEST(c.began, COALESCE(c.covered, c.began))), 0)))::bigint AS seconds
FROM counted c
GROUP BY c.type, c.slug
ORDER BY seconds DESC, c.type, c.slug;

-- name: ListUserLatency :many
-- Lists the median and the 95th percentile of the round trips, in microseconds, of users' connections to workspaces of some templates that
-- were open in a period. Connections without a known round trip are left out.
SELECT u.id AS user_id, u.username, array_agg(DISTINCT w.template_id)::uuid[] AS template_ids,
	(percentile_cont(0.5) WITHIN GROUP (ORDER BY l.latency_us))::float8 AS p50, (percentile_cont(0.95) WITHIN GROUP (ORDER BY l.latency_us))::float8 AS p95
FROM connection_logs l JOIN workspaces w ON w.id = l.workspace_id JOIN users u ON u.id = l.user_id
WHERE l.latency_us IS NOT NULL AND l.refused = 0 AND l.connect_time < sqlc.arg(until)::timestamptz AND (l.disconnect_time >= sqlc.arg(since)::timestamptz OR l.disconnect_time IS NULL)
	AND w.template_id = ANY (sqlc.arg(template_ids)::uuid[])
GROUP BY u.id, u.username
ORDER BY lower(u.username), u.id;
