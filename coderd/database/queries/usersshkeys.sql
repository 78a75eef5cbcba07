-- name: ListUserSSHKeys :many
SELECT * FROM user_ssh_keys WHERE user_id = $1 ORDER BY name;

-- name: GetUserSSHKey :one
SELECT * FROM user_ssh_keys WHERE id = $1 AND user_id = $2;

-- name: CountUserSSHKeys :one
SELECT count(*) FROM user_ssh_keys WHERE user_id = $1;

-- name: FreeUserSSHKey :exec
-- Deletes a user's expired keys that have a name or a fingerprint, so that a new one can have it.
DELETE FROM user_ssh_keys k WHERE k.user_id = sqlc.arg(user_id) AND (k.name = sqlc.arg(name) OR k.fingerprint = sqlc.arg(fingerprint))
	AND least(k.expires_at, k.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) <= now();

-- name: InsertUserSSHKey :one
-- A lifetime of 0 means forever.
INSERT INTO user_ssh_keys (id, user_id, name, public_key, fingerprint, expires_at)
VALUES ($1, $2, $3, $4, $5, now() + make_interval(secs => nullif(sqlc.arg(lifetime_seconds)::bigint, 0))) RETURNING *;

-- name: DeleteUserSSHKey :execrows
DELETE FROM user_ssh_keys WHERE id = $1 AND user_id = $2;

-- name: DeleteUserSSHKeys :exec
-- All of a deleted user's.
DELETE FROM user_ssh_keys WHERE user_id = $1;

-- name: FindSSHKeyHolder :one
-- Returns whose key it is, with everything that decides whether they may sign in with it. No key lives longer than max_seconds, if that is not 0.
SELECT k.id, k.user_id, u.status,
	coalesce(least(k.expires_at, k.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) <= now(), false)::boolean AS expired
FROM user_ssh_keys k JOIN users u ON u.id = k.user_id AND u.deleted_at IS NULL
WHERE k.fingerprint = sqlc.arg(fingerprint) AND k.public_key = sqlc.arg(public_key);

-- name: UseSSHKey :one
-- Is FindSSHKeyHolder, and records the use of a valid key unless that was done within the last seconds. unseen reports that the user's own
-- row has not been touched for a minute, or says that they are dormant.
WITH holder AS (
	SELECT k.id, k.user_id, u.status,
		coalesce(least(k.expires_at, k.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) <= now(), false) AS expired,
		u.status = 'dormant' OR u.last_seen_at IS NULL OR u.last_seen_at < now() - interval '1 minute' AS unseen
	FROM user_ssh_keys k JOIN users u ON u.id = k.user_id AND u.deleted_at IS NULL
	WHERE k.fingerprint = sqlc.arg(fingerprint) AND k.public_key = sqlc.arg(public_key)
), used AS (
	UPDATE user_ssh_keys k SET last_used_at = now() FROM holder h
	WHERE k.id = h.id AND NOT h.expired AND h.status <> 'suspended'
		AND (k.last_used_at IS NULL OR k.last_used_at < now() - make_interval(secs => sqlc.arg(every)::float8))
)
SELECT id, user_id, status, expired::boolean AS expired, unseen::boolean AS unseen FROM holder;

-- name: ListSSHKeyRegions :many
-- Returns at which regions a user's keys may sign in.
SELECT r.key_id, p.name FROM user_ssh_key_regions r JOIN user_ssh_keys k ON k.id = r.key_id JOIN workspace_proxies p ON p.id = r.proxy_id
WHERE k.user_id = $1 ORDER BY p.name;

-- name: IsSSHKeyAllowedAt :one
-- Reports whether a key may sign in at a region.
SELECT EXISTS (SELECT FROM user_ssh_key_regions WHERE key_id = $1 AND proxy_id = $2);

-- name: KnownRegions :many
-- Returns the ids of the region proxies with some names, and the names as they are written. It keeps the proxies from being deleted.
SELECT id, name FROM workspace_proxies WHERE lower(name) = ANY(sqlc.arg(names)::text[]) ORDER BY name FOR KEY SHARE;

-- name: AllowSSHKeyAt :exec
INSERT INTO user_ssh_key_regions (key_id, proxy_id) SELECT sqlc.arg(key_id)::uuid, unnest(sqlc.arg(proxy_ids)::uuid[]) ON CONFLICT DO NOTHING;

-- name: DisallowSSHKeyAt :exec
-- Takes all regions but some from a key.
DELETE FROM user_ssh_key_regions WHERE key_id = sqlc.arg(key_id) AND NOT proxy_id = ANY(sqlc.arg(kept)::uuid[]);
