-- name: ReportConnection :execrows
-- Stores a connection, or what has become of it: reports may come twice, and the end may come first. The agent must be one of a
-- workspace. A connection that has ended stays so.
INSERT INTO connection_logs (id, connect_time, disconnect_time, disconnect_reason, status_code, organization_id, workspace_owner_id, workspace_id,
	workspace_name, agent_id, agent_name, type, slug_or_port, user_id, ip, user_agent, path, bytes_in, bytes_out, region, latency_us)
SELECT sqlc.arg(id), sqlc.arg(connect_time), sqlc.narg(disconnect_time), sqlc.arg(disconnect_reason), sqlc.narg(status_code), w.organization_id, w.owner_id, w.id,
	w.name, a.id, a.name, sqlc.arg(type), sqlc.arg(slug_or_port), sqlc.narg(user_id), sqlc.arg(ip), sqlc.arg(user_agent), sqlc.arg(path),
	sqlc.arg(bytes_in), sqlc.arg(bytes_out), sqlc.arg(region), sqlc.narg(latency_us)::bigint
FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id WHERE a.id = sqlc.arg(agent_id)
ON CONFLICT (id) DO UPDATE SET disconnect_time = excluded.disconnect_time, disconnect_reason = excluded.disconnect_reason,
	status_code = coalesce(excluded.status_code, connection_logs.status_code), type = excluded.type, ip = coalesce(nullif(excluded.ip, ''), connection_logs.ip),
	path = coalesce(nullif(excluded.path, ''), connection_logs.path), bytes_in = excluded.bytes_in, bytes_out = excluded.bytes_out,
	latency_us = coalesce(excluded.latency_us, connection_logs.latency_us)
WHERE connection_logs.agent_id = excluded.agent_id AND connection_logs.disconnect_time IS NULL;

-- name: ReportRefusal :execrows
-- Counts what a user tried in vain: a user, a workspace, a type and a minute have one row, whichever server counts. The agent is that of an id, or without
-- one, of a name; no owner's name means the user. There is no row for what does not exist.
INSERT INTO connection_logs (id, connect_time, disconnect_time, disconnect_reason, status_code, organization_id, workspace_owner_id, workspace_id,
	workspace_name, agent_id, agent_name, type, slug_or_port, user_id, ip, user_agent, path, region, refused)
SELECT encode(substring(sha256(convert_to(concat_ws('/', 'refused', sqlc.arg(user_id)::uuid, w.id, sqlc.arg(type)::text, sqlc.arg(minute)::bigint), 'UTF8')) FROM 1 FOR 16), 'hex')::uuid,
	sqlc.arg(at)::timestamptz, sqlc.arg(at)::timestamptz, sqlc.arg(reason)::text, sqlc.arg(status_code)::int, w.organization_id, w.owner_id, w.id,
	w.name, a.id, a.name, sqlc.arg(type)::text, sqlc.arg(slug_or_port)::text, sqlc.arg(user_id)::uuid, sqlc.arg(ip)::text, sqlc.arg(user_agent)::text, sqlc.arg(path)::text,
	sqlc.arg(region)::text, sqlc.arg(tries)::int
FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id
WHERE w.deleted_at IS NULL AND a.id = COALESCE(sqlc.narg(agent_id)::uuid, (
	SELECT t.id FROM workspace_agents t JOIN workspaces named ON named.id = t.workspace_id JOIN users u ON u.id = named.owner_id
	WHERE (sqlc.arg(owner_name)::text = '' AND u.id = sqlc.arg(user_id)::uuid OR lower(u.username) = lower(sqlc.arg(owner_name)::text))
		AND lower(named.name) = lower(sqlc.arg(workspace_name)::text) AND named.deleted_at IS NULL
		AND (sqlc.arg(agent_name)::text = '' OR t.name = sqlc.arg(agent_name)::text)
	ORDER BY t.parent_id IS NOT NULL, t.name, t.id LIMIT 1))
ON CONFLICT (id) DO UPDATE SET refused = connection_logs.refused + excluded.refused;

-- name: ListConnectionLogs :many
-- One page, newest first. Filters that are null do not filter. before and before_id continue after a row: exports page by them.
WITH page AS (
	SELECT l.id FROM connection_logs l
	WHERE (sqlc.narg(organization_ids)::uuid[] IS NULL OR l.organization_id = ANY (sqlc.narg(organization_ids)::uuid[]))
		AND (sqlc.narg(owner_ids)::uuid[] IS NULL OR l.workspace_owner_id = ANY (sqlc.narg(owner_ids)::uuid[]))
		AND (sqlc.narg(user_ids)::uuid[] IS NULL OR l.user_id = ANY (sqlc.narg(user_ids)::uuid[]))
		AND (sqlc.narg(type)::text IS NULL OR l.type = sqlc.narg(type))
		AND (sqlc.narg(workspace_id)::uuid IS NULL OR l.workspace_id = sqlc.narg(workspace_id))
		AND (sqlc.narg(connection_id)::uuid IS NULL OR l.id = sqlc.narg(connection_id))
		AND (sqlc.narg(since)::timestamptz IS NULL OR l.connect_time >= sqlc.narg(since))
		AND (sqlc.narg(until)::timestamptz IS NULL OR l.connect_time < sqlc.narg(until))
		AND (sqlc.narg(ongoing)::boolean IS NULL OR (l.disconnect_time IS NULL) = sqlc.narg(ongoing))
		AND (sqlc.narg(refused)::boolean IS NULL OR (l.refused > 0) = sqlc.narg(refused))
		AND (sqlc.narg(before)::timestamptz IS NULL OR (l.connect_time, l.id) < (sqlc.narg(before)::timestamptz, sqlc.narg(before_id)::uuid))
	ORDER BY l.connect_time DESC, l.id DESC LIMIT sqlc.arg(page_limit)::int OFFSET sqlc.arg(page_offset)::int
)
SELECT sqlc.embed(entry), o.name AS organization_name, o.display_name AS organization_display_name, owner.username AS owner_name, u.username, u.name AS user_name
FROM page
JOIN connection_logs entry ON entry.id = page.id
LEFT JOIN organizations o ON o.id = entry.organization_id
LEFT JOIN users owner ON owner.id = entry.workspace_owner_id
LEFT JOIN users u ON u.id = entry.user_id
ORDER BY entry.connect_time DESC, entry.id DESC;

-- name: CountConnectionLogs :one
-- How many rows match, counted up to a bound.
SELECT count(*) FROM (
	SELECT FROM connection_logs l
	WHERE (sqlc.narg(organization_ids)::uuid[] IS NULL OR l.organization_id = ANY (sqlc.narg(organization_ids)::uuid[]))
		AND (sqlc.narg(owner_ids)::uuid[] IS NULL OR l.workspace_owner_id = ANY (sqlc.narg(owner_ids)::uuid[]))
		AND (sqlc.narg(user_ids)::uuid[] IS NULL OR l.user_id = ANY (sqlc.narg(user_ids)::uuid[]))
		AND (sqlc.narg(type)::text IS NULL OR l.type = sqlc.narg(type))
		AND (sqlc.narg(workspace_id)::uuid IS NULL OR l.workspace_id = sqlc.narg(workspace_id))
		AND (sqlc.narg(connection_id)::uuid IS NULL OR l.id = sqlc.narg(connection_id))
		AND (sqlc.narg(since)::timestamptz IS NULL OR l.connect_time >= sqlc.narg(since))
		AND (sqlc.narg(until)::timestamptz IS NULL OR l.connect_time < sqlc.narg(until))
		AND (sqlc.narg(ongoing)::boolean IS NULL OR (l.disconnect_time IS NULL) = sqlc.narg(ongoing))
		AND (sqlc.narg(refused)::boolean IS NULL OR (l.refused > 0) = sqlc.narg(refused))
	LIMIT sqlc.arg(bound)::int
) matching;

-- name: ListConnectionTypes :many
-- The types of the connections that a user has opened, as far back as the log reaches.
SELECT t.type::text AS type FROM unnest(ARRAY['ssh', 'vscode', 'jetbrains', 'reconnecting_pty', 'workspace_app', 'port_forwarding']) AS t (type)
WHERE EXISTS (SELECT 1 FROM connection_logs l WHERE l.user_id = sqlc.arg(user_id)::uuid AND l.type = t.type AND l.refused = 0);

-- name: EndConnections :execrows
-- Ends what an agent had open, except the named connections: it was restarted and cannot report their end any more.
UPDATE connection_logs SET disconnect_time = now(), disconnect_reason = sqlc.arg(reason)
WHERE agent_id = sqlc.arg(agent_id) AND disconnect_time IS NULL AND path <> 'proxied' AND NOT id = ANY (sqlc.arg(kept)::uuid[]);

-- name: SeeConnections :exec
-- These connections are open, says the server that proxies them.
UPDATE connection_logs SET seen_at = now() WHERE id = ANY (sqlc.arg(ids)::uuid[]) AND disconnect_time IS NULL;

-- name: EndLostConnections :execrows
-- Ends the proxied connections of servers that were killed, with the last time that they were seen.
UPDATE connection_logs SET disconnect_time = greatest(seen_at, connect_time), disconnect_reason = 'the server was lost'
WHERE path = 'proxied' AND disconnect_time IS NULL AND seen_at < now() - make_interval(secs => sqlc.arg(silence_seconds)::float8);

-- name: DeleteOldConnectionLogs :execrows
-- Connections that began before a time; one that is still open stays.
DELETE FROM connection_logs WHERE id IN (
	SELECT l.id FROM connection_logs l WHERE l.connect_time < sqlc.arg(before)::timestamptz AND l.disconnect_time IS NOT NULL
	ORDER BY l.connect_time LIMIT sqlc.arg(max_rows)
);
