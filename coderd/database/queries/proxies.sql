-- name: InsertWorkspaceProxy :one
-- Creates a proxy that has never connected.
INSERT INTO workspace_proxies (id, name, display_name, icon, token_hash) VALUES ($1, $2, $3, $4, $5) RETURNING *;

-- name: HoldWorkspaceProxies :exec
-- Keeps other transactions from changing the set of proxies, for a transaction that counts it.
LOCK TABLE workspace_proxies IN SHARE ROW EXCLUSIVE MODE;

-- name: CountWorkspaceProxies :one
SELECT count(*) FROM workspace_proxies;

-- name: ListWorkspaceProxies :many
-- Returns all proxies. One is connected if the server that it is connected to is alive.
SELECT sqlc.embed(p), (p.server_id IS NOT NULL AND EXISTS (
	SELECT FROM servers s WHERE s.id = p.server_id AND s.beat_at > now() - make_interval(secs => sqlc.arg(life_seconds)::float8)
))::boolean AS connected
FROM workspace_proxies p ORDER BY p.region;

-- name: LockWorkspaceProxy :one
-- Returns a proxy by its name or id, and locks it.
SELECT * FROM workspace_proxies WHERE lower(name) = lower(sqlc.arg(reference)::text) OR id::text = sqlc.arg(reference)::text FOR UPDATE;

-- name: GetWorkspaceProxyByToken :one
SELECT * FROM workspace_proxies WHERE token_hash = $1;

-- name: UpdateWorkspaceProxy :one
-- Changes what owners set.
UPDATE workspace_proxies SET name = $2, display_name = $3, icon = $4, token_hash = $5, updated_at = now() WHERE id = $1 RETURNING *;

-- name: DeleteWorkspaceProxy :exec
DELETE FROM workspace_proxies WHERE id = $1;

-- name: ConnectWorkspaceProxy :execrows
-- Records a proxy's connection, if its token is still valid. The newest connection counts.
UPDATE workspace_proxies SET url = $3, stun_port = $4, version = $5, server_id = $6, connection_id = $7, apps = $8, wildcard_host = $9, ssh_address = $10, wireguard_address = $11, seen_at = now() WHERE id = $1 AND token_hash = $2;

-- name: DisconnectWorkspaceProxy :exec
-- Records that a connection ended, unless a newer one has begun.
UPDATE workspace_proxies SET server_id = NULL, connection_id = NULL, seen_at = now() WHERE id = $1 AND connection_id = $2;

-- name: GrantRegionVisa :exec
-- Lets a proxy's node be introduced to an agent for a while, and removes some grants that have expired.
WITH old AS (
	DELETE FROM region_visas v WHERE (v.proxy_id, v.node_id, v.agent_id) IN (
		SELECT e.proxy_id, e.node_id, e.agent_id FROM region_visas e
		WHERE e.expires_at < now() - interval '10 minutes' ORDER BY e.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
	)
)
INSERT INTO region_visas (proxy_id, node_id, agent_id, expires_at)
VALUES (sqlc.arg(proxy_id), sqlc.arg(node_id), sqlc.arg(agent_id), now() + make_interval(secs => sqlc.arg(life_seconds)::float8))
ON CONFLICT (proxy_id, node_id, agent_id) DO UPDATE SET expires_at = excluded.expires_at;

-- name: HasRegionVisa :one
-- Reports whether a proxy's token is valid, and its node may be introduced to an agent.
SELECT EXISTS (
	SELECT FROM region_visas v JOIN workspace_proxies p ON p.id = v.proxy_id
	WHERE v.proxy_id = sqlc.arg(proxy_id) AND v.node_id = sqlc.arg(node_id) AND v.agent_id = sqlc.arg(agent_id) AND v.expires_at > now()
		AND p.token_hash = sqlc.arg(token_hash)
);
