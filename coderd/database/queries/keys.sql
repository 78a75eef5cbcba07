-- name: GetCredential :one
-- Returns everything that decides whether a token is valid, and what its user may do.
SELECT k.id, k.secret_hash, k.kind, k.lifetime_seconds, k.last_used_at, k.expires_at, k.end_reason, k.scopes, k.allow_list, k.user_agent, sqlc.embed(actors)
FROM api_keys k JOIN actors ON actors.id = k.user_id
WHERE k.id = $1;

-- name: TouchAPIKeys :many
-- Records that keys are in use, and extends sessions; tokens keep their end. It skips keys that have ended, whose user is suspended, or
-- whose use was recorded recently, and returns the users of the others. A session is extended at most once an hour, or once in a tenth of a
-- shorter lifetime: an update that leaves expires_at alone changes no index. It keeps program and address, unless the use names them, and a key
-- without a program is recorded at once.
UPDATE api_keys SET last_used_at = now(),
	user_agent = coalesce(nullif(sqlc.arg(user_agent)::text, ''), user_agent), address = coalesce(nullif(sqlc.arg(address)::text, ''), address),
	expires_at = CASE WHEN kind = 'token' OR expires_at > now() + make_interval(secs => lifetime_seconds - least(3600, lifetime_seconds / 10.0)) THEN expires_at
		ELSE now() + make_interval(secs => lifetime_seconds) END
WHERE id = ANY (sqlc.arg(ids)::text[]) AND expires_at > now()
	AND (last_used_at < now() - make_interval(secs => least(sqlc.arg(every)::float8, lifetime_seconds / 10.0))
		OR user_agent = '' AND sqlc.arg(user_agent)::text <> '')
	AND EXISTS (SELECT FROM users u WHERE u.id = user_id AND u.status <> 'suspended' AND u.deleted_at IS NULL)
RETURNING user_id;

-- name: InsertAPIKey :one
INSERT INTO api_keys (id, user_id, secret_hash, name, kind, workspace_id, scopes, allow_list, user_agent, address, lifetime_seconds, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, sqlc.arg(lifetime_seconds)::bigint, now() + make_interval(secs => sqlc.arg(lifetime_seconds)::bigint)) RETURNING *;

-- name: GetAPIKey :one
SELECT * FROM api_keys WHERE id = $1 AND user_id = $2;

-- name: ListSessions :many
-- Lists a user's sessions that have not ended, the last used first.
SELECT * FROM api_keys WHERE user_id = $1 AND kind = 'session' AND expires_at > now()
ORDER BY last_used_at DESC, id LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: GetTokenByName :one
SELECT * FROM api_keys WHERE user_id = $1 AND name = $2 AND kind = 'token';

-- name: ListTokens :many
-- Lists long-lived tokens, of one user or, for null, of all: the valid ones, or also the expired ones.
SELECT sqlc.embed(k), u.username FROM api_keys k JOIN users u ON u.id = k.user_id
WHERE k.kind = 'token' AND (sqlc.arg(include_expired)::boolean OR k.expires_at > now()) AND (sqlc.narg(user_id)::uuid IS NULL OR k.user_id = sqlc.narg(user_id))
ORDER BY k.created_at, k.id LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: DeleteAPIKey :execrows
DELETE FROM api_keys WHERE id = $1 AND user_id = $2;

-- name: FreeTokenName :exec
-- Deletes a user's token of a name if it has expired, so that a new one can have the name.
DELETE FROM api_keys WHERE user_id = $1 AND name = $2 AND kind = 'token' AND expires_at <= now();

-- name: ExpireAPIKey :execrows
-- Ends a key and keeps its row; a trigger notifies every server. A key that has already expired keeps its time.
UPDATE api_keys SET expires_at = least(expires_at, now()) WHERE id = $1 AND user_id = $2;

-- name: DeleteGitSSHKey :exec
DELETE FROM git_ssh_keys WHERE user_id = $1;

-- name: DeleteUserKeys :exec
-- Deletes a user's keys of the given kinds, except keep; "" keeps none.
DELETE FROM api_keys WHERE user_id = $1 AND kind = ANY (sqlc.arg(kinds)::text[]) AND id <> sqlc.arg(kept_id)::text;

-- name: DeleteExpiredKeys :exec
DELETE FROM api_keys WHERE user_id = $1 AND expires_at < now();

-- name: InsertGitSSHKeyOnce :exec
-- Stores a key pair unless there is one; read the result back.
INSERT INTO git_ssh_keys (user_id, private_key, sealed, public_key) VALUES ($1, '', $2, $3) ON CONFLICT (user_id) DO NOTHING;

-- name: ReplaceGitSSHKey :one
INSERT INTO git_ssh_keys (user_id, private_key, sealed, public_key) VALUES ($1, '', $2, $3)
ON CONFLICT (user_id) DO UPDATE SET private_key = '', sealed = excluded.sealed, public_key = excluded.public_key, updated_at = now() RETURNING *;

-- name: GetGitSSHKey :one
SELECT * FROM git_ssh_keys WHERE user_id = $1;

-- name: ListUsersWithExpiredKeys :many
-- Lists the users whose keys, SSH keys or devices expired between two moments. No SSH key lives longer than max_seconds, if that is not 0.
SELECT k.user_id FROM api_keys k WHERE k.expires_at > sqlc.arg(after) AND k.expires_at <= sqlc.arg(until)
UNION SELECT s.user_id FROM user_ssh_keys s
	WHERE least(s.expires_at, s.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) > sqlc.arg(after)
	AND least(s.expires_at, s.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) <= sqlc.arg(until)
UNION SELECT d.user_id FROM user_devices d WHERE d.expires_at > sqlc.arg(after) AND d.expires_at <= sqlc.arg(until);

-- name: NextKeyExpiry :one
-- Returns when the next key, SSH key or device expires after a moment, or a day after that moment if none does.
SELECT coalesce(least(
	(SELECT min(k.expires_at) FROM api_keys k WHERE k.expires_at > sqlc.arg(after)::timestamptz),
	(SELECT min(least(s.expires_at, s.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0)))) FROM user_ssh_keys s
		WHERE least(s.expires_at, s.created_at + make_interval(secs => nullif(sqlc.arg(max_seconds)::float8, 0))) > sqlc.arg(after)::timestamptz),
	(SELECT min(d.expires_at) FROM user_devices d WHERE d.expires_at > sqlc.arg(after)::timestamptz)
), sqlc.arg(after)::timestamptz + interval '1 day')::timestamptz AS at;
