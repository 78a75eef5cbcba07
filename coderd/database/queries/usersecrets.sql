-- name: ListUserSecrets :many
SELECT * FROM user_secrets WHERE user_id = $1 ORDER BY name;

-- name: GetUserSecret :one
SELECT * FROM user_secrets WHERE user_id = $1 AND name = $2;

-- name: LockUserSecrets :one
-- One change of a user's secrets at a time, so that their limits hold. Returns nothing for a deleted user.
SELECT id FROM users WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: LockUserSecret :one
-- The secret as it stays until the transaction ends: no server encrypts it with another key meanwhile.
SELECT * FROM user_secrets WHERE user_id = $1 AND name = $2 FOR UPDATE;

-- name: InsertUserSecret :one
INSERT INTO user_secrets (id, user_id, name, description, env_name, file_path, enabled, sealed, size)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *;

-- name: UpdateUserSecret :one
UPDATE user_secrets SET description = $2, env_name = $3, file_path = $4, enabled = $5, sealed = $6, size = $7, updated_at = clock_timestamp()
WHERE id = $1 RETURNING *;

-- name: DeleteUserSecret :execrows
DELETE FROM user_secrets WHERE user_id = $1 AND name = $2;

-- name: DeleteUserSecrets :exec
-- All of a deleted user's.
DELETE FROM user_secrets WHERE user_id = $1;

-- name: CountUserSecrets :one
-- What the limits of a user's secrets are about: how many, and bytes in all and in environment variables.
SELECT count(*) AS secrets, coalesce(sum(size), 0)::bigint AS bytes, coalesce(sum(size) FILTER (WHERE env_name <> ''), 0)::bigint AS env_bytes
FROM user_secrets WHERE user_id = $1;

-- name: NotifyUserSecrets :exec
-- Tells the running agents of a user's workspaces to get their manifest again, when the transaction commits.
SELECT pg_notify('agents_manifest', a.id::text) FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id
WHERE w.owner_id = $1 AND w.deleted_at IS NULL AND a.token_hash IS NOT NULL AND a.user_data AND a.complete;
