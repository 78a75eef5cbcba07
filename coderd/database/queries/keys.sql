-- name: GetCredential :one
-- All that decides whether a token is good, and what its user may do.
SELECT k.id, k.user_id, k.secret_hash, k.kind, k.lifetime_seconds, k.last_used_at, k.expires_at, u.username, u.status, u.roles
FROM api_keys k JOIN users u ON u.id = k.user_id
WHERE k.id = $1 AND u.deleted_at IS NULL;

-- name: TouchAPIKey :exec
-- A session lives on while it is used; a token keeps its end.
UPDATE api_keys SET last_used_at = now(),
	expires_at = CASE WHEN kind = 'token' THEN expires_at ELSE now() + make_interval(secs => lifetime_seconds) END
WHERE id = $1;

-- name: InsertAPIKey :one
INSERT INTO api_keys (id, user_id, secret_hash, name, kind, workspace_id, lifetime_seconds, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, sqlc.arg(lifetime_seconds)::bigint, now() + make_interval(secs => sqlc.arg(lifetime_seconds)::bigint)) RETURNING *;

-- name: GetAPIKey :one
SELECT * FROM api_keys WHERE id = $1 AND user_id = $2;

-- name: GetTokenByName :one
SELECT * FROM api_keys WHERE user_id = $1 AND name = $2 AND kind = 'token';

-- name: ListTokens :many
-- Long-lived tokens, of one user or (null) of all: those that are still good, or the expired ones too.
SELECT sqlc.embed(k), u.username FROM api_keys k JOIN users u ON u.id = k.user_id
WHERE k.kind = 'token' AND (sqlc.arg(include_expired)::boolean OR k.expires_at > now()) AND (sqlc.narg(user_id)::uuid IS NULL OR k.user_id = sqlc.narg(user_id))
ORDER BY k.created_at, k.id LIMIT 1000;

-- name: DeleteAPIKey :execrows
DELETE FROM api_keys WHERE id = $1 AND user_id = $2;

-- name: ExpireAPIKey :execrows
-- Ends a key and keeps its row; a trigger tells every server. A key that has expired before keeps its time.
UPDATE api_keys SET expires_at = least(expires_at, now()) WHERE id = $1 AND user_id = $2;

-- name: DeleteGitSSHKey :exec
DELETE FROM git_ssh_keys WHERE user_id = $1;

-- name: DeleteUserKeys :exec
-- Of the named kinds, but keep one ("": none).
DELETE FROM api_keys WHERE user_id = $1 AND kind = ANY (sqlc.arg(kinds)::text[]) AND id <> sqlc.arg(kept_id)::text;

-- name: DeleteExpiredKeys :exec
DELETE FROM api_keys WHERE user_id = $1 AND expires_at < now();

-- name: InsertGitSSHKeyOnce :exec
-- The first pair stays; read it back.
INSERT INTO git_ssh_keys (user_id, private_key, public_key) VALUES ($1, $2, $3) ON CONFLICT (user_id) DO NOTHING;

-- name: ReplaceGitSSHKey :one
INSERT INTO git_ssh_keys (user_id, private_key, public_key) VALUES ($1, $2, $3)
ON CONFLICT (user_id) DO UPDATE SET private_key = excluded.private_key, public_key = excluded.public_key, updated_at = now() RETURNING *;

-- name: GetGitSSHKey :one
SELECT * FROM git_ssh_keys WHERE user_id = $1;

-- name: ListUsersWithExpiredKeys :many
-- Whose keys ended by time after one moment and not after another.
SELECT DISTINCT user_id FROM api_keys WHERE expires_at > sqlc.arg(after) AND expires_at <= sqlc.arg(until);

-- name: NextKeyExpiry :one
-- When the next key ends after a moment; far off when none does.
SELECT coalesce(min(expires_at), sqlc.arg(after)::timestamptz + interval '1 day')::timestamptz AS at FROM api_keys WHERE expires_at > sqlc.arg(after)::timestamptz;
