-- name: LockUsers :exec
-- Takes a lock until the transaction ends, so that only one transaction at a time creates the first user or removes an owner.
SELECT pg_advisory_xact_lock(7358001);

-- name: HasUsers :one
SELECT EXISTS (SELECT 1 FROM users WHERE deleted_at IS NULL);

-- name: HasSeveralUsers :one
-- Tells whether there is more than one user, of any kind and status.
SELECT EXISTS (SELECT FROM users WHERE deleted_at IS NULL OFFSET 1);

-- name: InsertUser :one
INSERT INTO users (id, username, email, name, password_hash, login_type, status, roles, is_service_account)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *;

-- name: GetActor :one
-- Returns a user with everything that decides what they may do.
SELECT * FROM actors WHERE id = $1;

-- name: GetUser :one
SELECT * FROM users WHERE id = $1 AND deleted_at IS NULL;

-- name: GetUserByName :one
SELECT * FROM users WHERE lower(username) = lower(sqlc.arg(username)::text) AND deleted_at IS NULL;

-- name: GetUserByEmail :one
SELECT * FROM users WHERE lower(email) = lower(sqlc.arg(email)::text) AND deleted_at IS NULL;

-- name: ListUsers :many
-- Lists one page of users by name or in another order, with the number of all that match. By name, a username that is the search comes
-- first, so that a short list of suggestions has it. Null filters match all users; the role "member" means no other role. The number takes
-- reading all that match, so an order needs no index: last_seen_at changes too often for one. After a user, by name only, the page begins
-- where that user is or would be: also after one who no longer matches, or is deleted.
WITH found AS (SELECT id, count(*) OVER () AS total FROM users
WHERE deleted_at IS NULL
	AND (sqlc.narg(only_id)::uuid IS NULL OR id = sqlc.narg(only_id))
	AND (sqlc.arg(statuses)::text[] = '{}' OR status = ANY (sqlc.arg(statuses)::text[]))
	AND (sqlc.arg(role)::text = '' OR sqlc.arg(role)::text = ANY (roles) OR sqlc.arg(role)::text = 'member' AND roles = '{}')
	AND (sqlc.narg(organization_id)::uuid IS NULL OR id IN (SELECT m.user_id FROM organization_members m WHERE m.organization_id = sqlc.narg(organization_id)))
	AND (sqlc.arg(login_types)::text[] = '{}' OR login_type = ANY (sqlc.arg(login_types)::text[]))
	AND (sqlc.arg(github_user_id)::text = '' OR id IN (SELECT l.user_id FROM user_links l
		WHERE l.login_type = 'github' AND l.issuer = 'https://github.com' AND l.subject = sqlc.arg(github_user_id)::text))
	AND (sqlc.narg(created_before)::timestamptz IS NULL OR created_at <= sqlc.narg(created_before))
	AND (sqlc.narg(created_after)::timestamptz IS NULL OR created_at >= sqlc.narg(created_after))
	AND (sqlc.narg(seen_before)::timestamptz IS NULL OR last_seen_at <= sqlc.narg(seen_before) OR last_seen_at IS NULL)
	AND (sqlc.narg(seen_after)::timestamptz IS NULL OR last_seen_at >= sqlc.narg(seen_after))
	AND (sqlc.arg(search)::text = '' OR strpos(lower(username), lower(sqlc.arg(search)::text)) > 0
		OR strpos(lower(email), lower(sqlc.arg(search)::text)) > 0 OR strpos(lower(name), lower(sqlc.arg(search)::text)) > 0))
SELECT sqlc.embed(users), found.total FROM found JOIN users ON users.id = found.id
WHERE sqlc.narg(after_id)::uuid IS NULL OR (lower(users.username) <> lower(sqlc.arg(search)::text), lower(users.username), users.id)
	> (SELECT lower(a.username) <> lower(sqlc.arg(search)::text), lower(a.username), a.id FROM users a WHERE a.id = sqlc.narg(after_id))
ORDER BY CASE WHEN sqlc.arg(sort)::text = 'seen' THEN users.last_seen_at END DESC NULLS LAST,
	CASE WHEN sqlc.arg(sort)::text = 'created' THEN users.created_at END DESC,
	lower(users.username) = lower(sqlc.arg(search)::text) DESC, lower(users.username), users.id
LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: UserExists :one
-- Reports whether a user exists or existed.
SELECT EXISTS (SELECT FROM users WHERE id = $1);

-- name: CountOtherOwners :one
-- Counts the owners other than this one who can sign in.
SELECT count(*) FROM users WHERE deleted_at IS NULL AND status <> 'suspended' AND 'owner' = ANY (roles) AND id <> $1;

-- name: CountLivingWorkspaces :one
SELECT count(*) FROM workspaces WHERE owner_id = $1 AND deleted_at IS NULL;

-- name: UpdateUserProfile :one
UPDATE users SET username = $2, name = $3, updated_at = now() WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: UpdateUserPassword :exec
UPDATE users SET password_hash = $2, login_type = 'password', updated_at = now() WHERE id = $1 AND deleted_at IS NULL;

-- name: UpdateUserStatus :one
UPDATE users SET status = $2, updated_at = now() WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: UpdateUserRoles :one
UPDATE users SET roles = $2, updated_at = now() WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: LockUser :one
-- Locks an undeleted user, for a transaction that deletes them. What HoldUser protects happens before it, or not at all.
SELECT id FROM users WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- name: HoldUser :one
-- Locks an undeleted user against deletion, for a transaction that gives them something that the deletion checks for.
SELECT id FROM users WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE;

-- name: DeleteUser :exec
-- Deletes a user. The row stays because other rows refer to it; the name and the address become available.
UPDATE users SET deleted_at = now(), updated_at = now(), password_hash = '', roles = '{}', status = 'suspended' WHERE id = $1 AND deleted_at IS NULL;

-- name: TouchUser :exec
-- Records that users were seen, and makes dormant ones active.
UPDATE users SET last_seen_at = now(), status = CASE status WHEN 'dormant' THEN 'active' ELSE status END WHERE id = $1;

-- name: TouchUsers :exec
-- Locks users in the order of their ids, as every statement that locks several users must.
UPDATE users SET last_seen_at = now(), status = CASE status WHEN 'dormant' THEN 'active' ELSE status END WHERE id IN (SELECT u.id FROM users u WHERE u.id = ANY (sqlc.arg(ids)::uuid[]) ORDER BY u.id FOR UPDATE);

-- name: GetUserAppearance :one
SELECT theme, terminal_font FROM user_preferences WHERE user_id = $1;

-- name: LockUserAppearance :one
-- Creates the row if necessary.
INSERT INTO user_preferences (user_id, preferences) VALUES ($1, '{}')
ON CONFLICT (user_id) DO UPDATE SET preferences = user_preferences.preferences
RETURNING theme, terminal_font;

-- name: SetUserAppearance :one
-- Null keeps a field.
UPDATE user_preferences SET theme = COALESCE(sqlc.narg(theme), theme), terminal_font = COALESCE(sqlc.narg(terminal_font), terminal_font)
WHERE user_id = $1 RETURNING theme, terminal_font;

-- name: GetUserPreferences :one
SELECT preferences FROM user_preferences WHERE user_id = $1;

-- name: LockUserPreferences :one
-- Creates the row if necessary, so that changes of different fields at once keep each other's.
INSERT INTO user_preferences (user_id, preferences) VALUES ($1, '{}')
ON CONFLICT (user_id) DO UPDATE SET preferences = user_preferences.preferences
RETURNING preferences;

-- name: SetUserPreferences :exec
UPDATE user_preferences SET preferences = $2 WHERE user_id = $1;

-- name: CountUserStatuses :many
-- Counts users by their status at given times, which are the ends of days. There is no row for a status that no user had.
SELECT d.at::timestamptz AS at, s.status, count(*) AS users FROM unnest(sqlc.arg(times)::timestamptz[]) AS d(at)
CROSS JOIN LATERAL (
	SELECT DISTINCT ON (u.user_id) u.status FROM user_statuses u WHERE u.since < d.at ORDER BY u.user_id, u.since DESC, u.id DESC
) AS s
WHERE s.status <> 'deleted' GROUP BY d.at, s.status ORDER BY d.at, s.status;
