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
UPDATE workspace_proxies SET url = $3, stun_port = $4, version = $5, server_id = $6, connection_id = $7, seen_at = now() WHERE id = $1 AND token_hash = $2;

-- name: DisconnectWorkspaceProxy :exec
-- Records that a connection ended, unless a newer one has begun.
UPDATE workspace_proxies SET server_id = NULL, connection_id = NULL, seen_at = now() WHERE id = $1 AND connection_id = $2;
