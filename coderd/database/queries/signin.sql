-- name: GetUserByLink :one
-- The living user that an identity belongs to.
SELECT sqlc.embed(u) FROM user_links l JOIN users u ON u.id = l.user_id
WHERE l.login_type = $1 AND l.issuer = $2 AND l.subject = $3 AND u.deleted_at IS NULL;

-- name: GetUserLink :one
SELECT * FROM user_links WHERE user_id = $1 AND login_type = $2;

-- name: UpsertUserLink :exec
-- Binds the account to an identity, with the claims of its sign-in.
INSERT INTO user_links (user_id, login_type, issuer, subject, claims) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, login_type) DO UPDATE SET issuer = excluded.issuer, subject = excluded.subject, claims = excluded.claims, updated_at = now();

-- name: DeleteUserLinks :exec
DELETE FROM user_links WHERE user_id = $1;

-- name: UpdateUserLoginType :one
-- Changes how the account signs in, and deletes its password.
UPDATE users SET login_type = $2, password_hash = '', updated_at = now() WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: UpdateUserEmail :one
-- Stores the identity provider's address and name of the user, unless another user has the address.
UPDATE users u SET email = sqlc.arg(email), name = sqlc.arg(name), updated_at = now()
WHERE u.id = $1 AND u.deleted_at IS NULL AND NOT EXISTS (
	SELECT FROM users o WHERE lower(o.email) = lower(sqlc.arg(email)) AND o.id <> u.id AND o.deleted_at IS NULL
) RETURNING u.*;

-- name: EndUserSessions :execrows
-- Ends a user's sessions, except one if kept_id names it, and keeps their rows, so that a client that still uses one learns why. A trigger
-- tells every server.
UPDATE api_keys SET expires_at = now(), end_reason = $2 WHERE user_id = $1 AND kind = 'session' AND expires_at > now() AND id <> sqlc.arg(kept_id)::text;

-- name: ListSignInsToCheck :many
-- Sign-ins whose users have sessions, and whose provider was not asked since a moment, or has refused since.
SELECT l.user_id, l.provider_id, l.failure FROM external_auth_links l JOIN users u ON u.id = l.user_id
WHERE l.provider_id = ANY (sqlc.arg(providers)::text[]) AND 'sign-in:' || u.login_type = l.provider_id AND u.deleted_at IS NULL
	AND (l.failure <> '' OR l.refreshable AND l.updated_at < sqlc.arg(before)::timestamptz)
	AND EXISTS (SELECT FROM api_keys k WHERE k.user_id = l.user_id AND k.kind = 'session' AND k.expires_at > now())
ORDER BY l.updated_at LIMIT sqlc.arg(max_rows);

-- name: MarkDormantUsers :many
-- Marks active users as dormant whom no server has seen since a moment, and who are older than that.
UPDATE users SET status = 'dormant', updated_at = now()
WHERE status = 'active' AND deleted_at IS NULL AND coalesce(last_seen_at, created_at) < sqlc.arg(before)::timestamptz
	AND created_at < sqlc.arg(before)::timestamptz
RETURNING id, username;

-- name: InsertPasscode :exec
INSERT INTO one_time_passcodes (user_id, hash, expires_at) VALUES ($1, $2, now() + make_interval(secs => sqlc.arg(seconds)::float8))
ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash, expires_at = excluded.expires_at, created_at = now();

-- name: GetPasscodeAge :one
-- How long ago a user's passcode was sent, in seconds.
SELECT extract(epoch FROM now() - created_at)::float8 AS seconds FROM one_time_passcodes WHERE user_id = $1;

-- name: TakePasscode :execrows
-- Uses a passcode up: of several requests, one succeeds.
DELETE FROM one_time_passcodes WHERE user_id = $1 AND hash = $2 AND expires_at > now();

-- name: CheckPasscode :one
-- Whether a passcode is good, without using it up.
SELECT count(*) FROM one_time_passcodes WHERE user_id = $1 AND hash = $2 AND expires_at > now();
