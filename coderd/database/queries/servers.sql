-- name: AnnounceServer :exec
-- Tells the other servers about a server, which is ready for them.
INSERT INTO servers (id, url, version, link_version, min_link_version, state_keys, schema)
VALUES (@id, @url, @version, @link_version, @min_link_version, @state_keys, @schema)
ON CONFLICT (id) DO UPDATE SET url = excluded.url, version = excluded.version, link_version = excluded.link_version,
	min_link_version = excluded.min_link_version, state_keys = excluded.state_keys, schema = excluded.schema, beat_at = now();

-- name: ListServers :many
-- Returns the announced servers with a heartbeat within a number of seconds, oldest first.
SELECT id, url, version, link_version, min_link_version, state_keys, region, started_at, beat_at, links, now()::timestamptz AS now
FROM servers
WHERE url <> '' AND beat_at > now() - make_interval(secs => sqlc.arg(life_seconds)::float8) ORDER BY started_at, id;

-- name: Clock :one
-- Returns the time of the database's clock.
SELECT clock_timestamp()::timestamptz AS now;

-- name: SetServerLinks :exec
-- Notes to how many other servers a server is linked.
UPDATE servers SET links = sqlc.arg(links)::integer WHERE id = @id;
