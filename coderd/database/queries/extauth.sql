-- name: GetExternalAuthLink :one
SELECT * FROM external_auth_links WHERE user_id = $1 AND provider_id = $2;

-- name: LockExternalAuthLink :one
-- Locks the link until the transaction ends: one server refreshes it at a time.
SELECT * FROM external_auth_links WHERE user_id = $1 AND provider_id = $2 FOR UPDATE;

-- name: ListExternalAuthLinks :many
SELECT * FROM external_auth_links WHERE user_id = $1 ORDER BY provider_id;

-- name: UpsertExternalAuthLink :exec
-- Replaces the old link after a new sign-in. A trigger notifies the user's pages.
WITH linked AS (
	INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable, expires_at) VALUES ($1, $2, $3, $4, $5)
	ON CONFLICT (user_id, provider_id) DO UPDATE SET tokens = excluded.tokens, refreshable = excluded.refreshable, expires_at = excluded.expires_at,
		failure = '', updated_at = clock_timestamp()
	RETURNING user_id
)
SELECT notify_event('user', user_id, user_id) FROM linked;

-- name: UpdateExternalAuthLink :one
UPDATE external_auth_links SET tokens = $3, refreshable = $4, expires_at = $5, failure = '', updated_at = clock_timestamp()
WHERE user_id = $1 AND provider_id = $2 RETURNING *;

-- name: FailExternalAuthLink :exec
-- Marks the link as failed, unless its tokens have been replaced since.
UPDATE external_auth_links SET failure = sqlc.arg(failure)::text
WHERE user_id = $1 AND provider_id = $2 AND updated_at = sqlc.arg(seen)::timestamptz;

-- name: DeleteExternalAuthLink :execrows
-- Deletes a link. A trigger notifies the user's pages.
WITH unlinked AS (DELETE FROM external_auth_links WHERE user_id = $1 AND provider_id = $2 RETURNING user_id)
SELECT notify_event('user', user_id, user_id) FROM unlinked;

-- name: DeleteUserExternalAuthLinks :exec
DELETE FROM external_auth_links WHERE user_id = $1;
