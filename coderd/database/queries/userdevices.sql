-- name: ListUserDevices :many
-- Lists a user's devices, with the names of their regions.
SELECT sqlc.embed(d), coalesce(p.name, '')::text AS region FROM user_devices d LEFT JOIN workspace_proxies p ON p.id = d.proxy_id
WHERE d.user_id = $1 ORDER BY d.name;

-- name: GetUserDevice :one
SELECT sqlc.embed(d), coalesce(p.name, '')::text AS region FROM user_devices d LEFT JOIN workspace_proxies p ON p.id = d.proxy_id
WHERE d.id = $1 AND d.user_id = $2;

-- name: CountUserDevices :one
SELECT count(*) FROM user_devices WHERE user_id = $1;

-- name: FreeUserDevices :exec
-- Deletes a user's expired devices that have a name or a key, so that a new one can have it, and those that expired a month ago.
DELETE FROM user_devices WHERE user_id = $1 AND expires_at <= now() AND (name = $2 OR public_key = $3 OR expires_at < now() - interval '30 days');

-- name: InsertUserDevice :one
INSERT INTO user_devices (id, user_id, name, public_key, proxy_id, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => sqlc.arg(lifetime_seconds)::bigint)) RETURNING *;

-- name: RenameUserDevice :one
UPDATE user_devices SET name = $3 WHERE id = $1 AND user_id = $2 RETURNING *;

-- name: DeleteUserDevice :execrows
DELETE FROM user_devices WHERE id = $1 AND user_id = $2;

-- name: DeleteUserDevices :exec
-- All of a deleted user's.
DELETE FROM user_devices WHERE user_id = $1;

-- name: ListActiveDevices :many
-- Lists the devices that may connect to a region, or to the servers without one.
SELECT d.* FROM user_devices d JOIN users u ON u.id = d.user_id AND u.deleted_at IS NULL AND u.status <> 'suspended'
WHERE d.proxy_id IS NOT DISTINCT FROM sqlc.narg(proxy_id)::uuid AND d.expires_at > now() ORDER BY d.id;

-- name: GetActiveDeviceAt :one
-- Returns a device that may connect to a region.
SELECT d.* FROM user_devices d JOIN users u ON u.id = d.user_id AND u.deleted_at IS NULL AND u.status <> 'suspended'
WHERE d.id = sqlc.arg(id) AND d.proxy_id = sqlc.arg(proxy_id)::uuid AND d.expires_at > now();

-- name: ListActiveDevicesOf :many
-- Lists those of a user that may connect to a region, or to the servers without one.
SELECT d.* FROM user_devices d JOIN users u ON u.id = d.user_id AND u.deleted_at IS NULL AND u.status <> 'suspended'
WHERE d.user_id = sqlc.arg(user_id) AND d.proxy_id IS NOT DISTINCT FROM sqlc.narg(proxy_id)::uuid AND d.expires_at > now() ORDER BY d.id;

-- name: ListDevicesAtEndpoint :many
-- Lists those that may connect to the servers and were last seen at an address and port.
SELECT d.* FROM user_devices d JOIN users u ON u.id = d.user_id AND u.deleted_at IS NULL AND u.status <> 'suspended'
WHERE d.endpoint = sqlc.arg(endpoint)::text AND d.proxy_id IS NULL AND d.expires_at > now() ORDER BY d.id;

-- name: NoteDevices :many
-- Records where and when the gateway of a server, or of the region that they connect to, saw devices, unless a later moment is recorded, and returns
-- the users who have not been seen for a minute, or whom their own row calls dormant. It locks devices in the order of their ids, since several gateways do this.
WITH seen AS (
	SELECT DISTINCT ON (s.id) s.id, s.endpoint, least(s.at, now()) AS at
	FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(endpoints)::text[]) AS endpoint, unnest(sqlc.arg(ats)::timestamptz[]) AS at) s
	ORDER BY s.id, s.at DESC
), noted AS (
	UPDATE user_devices d SET endpoint = s.endpoint, endpoint_at = s.at, last_used_at = s.at, gateway = sqlc.arg(gateway)::text FROM seen s
	WHERE d.id = s.id AND d.proxy_id IS NOT DISTINCT FROM sqlc.narg(proxy_id)::uuid AND (d.endpoint_at IS NULL OR d.endpoint_at < s.at)
		AND d.id IN (SELECT l.id FROM user_devices l WHERE l.id = ANY (sqlc.arg(ids)::uuid[]) ORDER BY l.id FOR UPDATE)
	RETURNING d.user_id
)
SELECT u.id FROM users u WHERE u.id IN (SELECT n.user_id FROM noted n) AND u.deleted_at IS NULL AND u.status <> 'suspended'
	AND (u.status = 'dormant' OR u.last_seen_at IS NULL OR u.last_seen_at < now() - interval '1 minute');
