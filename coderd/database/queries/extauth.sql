-- name: GetExternalAuthLink :one
SELECT * FROM external_auth_links WHERE user_id = $1 AND provider_id = $2;

-- name: LockExternalAuthLink :one
-- Until the transaction ends: one refresh at a time, over all servers.
SELECT * FROM external_auth_links WHERE user_id = $1 AND provider_id = $2 FOR UPDATE;

-- name: ListExternalAuthLinks :many
SELECT * FROM external_auth_links WHERE user_id = $1 ORDER BY provider_id;

-- name: UpsertExternalAuthLink :exec
-- A new sign-in replaces the old link. The user's pages are told.
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
-- Only if the tokens are still those that were found to be of no use.
UPDATE external_auth_links SET failure = sqlc.arg(failure)::text
WHERE user_id = $1 AND provider_id = $2 AND updated_at = sqlc.arg(seen)::timestamptz;

-- name: DeleteExternalAuthLink :execrows
-- The user's pages are told.
WITH unlinked AS (DELETE FROM external_auth_links WHERE user_id = $1 AND provider_id = $2 RETURNING user_id)
SELECT notify_event('user', user_id, user_id) FROM unlinked;

-- name: DeleteUserExternalAuthLinks :exec
DELETE FROM external_auth_links WHERE user_id = $1;

-- name: ListExternalAuthLinksNotUnder :many
-- Links whose tokens do not begin with the header of a key.
SELECT * FROM external_auth_links WHERE substring(tokens FROM 1 FOR length(sqlc.arg(header)::bytea)) <> sqlc.arg(header)::bytea
ORDER BY user_id, provider_id;

-- name: ReencryptExternalAuthLink :exec
-- The same tokens under another key; nothing when they were changed meanwhile.
UPDATE external_auth_links SET tokens = sqlc.arg(tokens)::bytea WHERE user_id = $1 AND provider_id = $2 AND tokens = sqlc.arg(before)::bytea;
