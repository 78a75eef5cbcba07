-- name: ListScimUsers :many
-- The users that an identity provider may see: those that it provisioned, and those that sign in with it. A null argument selects all.
SELECT sqlc.embed(u), coalesce(s.user_name, u.email)::text AS user_name, coalesce(s.external_id, '')::text AS external_id,
	coalesce(s.given_name, '')::text AS given_name, coalesce(s.family_name, '')::text AS family_name, count(*) OVER () AS total
FROM users u LEFT JOIN scim_users s ON s.user_id = u.id
WHERE u.deleted_at IS NULL AND CASE WHEN s.user_id IS NULL THEN u.login_type = 'oidc' ELSE NOT s.removed END
	AND (sqlc.narg(id)::text IS NULL OR u.id::text = lower(sqlc.narg(id)))
	AND (sqlc.narg(user_name)::text IS NULL OR lower(coalesce(s.user_name, u.email)) = lower(sqlc.narg(user_name)))
	AND (sqlc.narg(email)::text IS NULL OR lower(u.email) = lower(sqlc.narg(email)))
	AND (sqlc.narg(external_id)::text IS NULL OR s.external_id = sqlc.narg(external_id))
	AND (sqlc.narg(display_name)::text IS NULL OR lower(u.name) = lower(sqlc.narg(display_name)))
	AND (sqlc.narg(active)::boolean IS NULL OR (u.status <> 'suspended') = sqlc.narg(active))
ORDER BY u.created_at, u.id LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: CountScimUsers :one
SELECT count(*) FROM users u LEFT JOIN scim_users s ON s.user_id = u.id
WHERE u.deleted_at IS NULL AND CASE WHEN s.user_id IS NULL THEN u.login_type = 'oidc' ELSE NOT s.removed END
	AND (sqlc.narg(id)::text IS NULL OR u.id::text = lower(sqlc.narg(id)))
	AND (sqlc.narg(user_name)::text IS NULL OR lower(coalesce(s.user_name, u.email)) = lower(sqlc.narg(user_name)))
	AND (sqlc.narg(email)::text IS NULL OR lower(u.email) = lower(sqlc.narg(email)))
	AND (sqlc.narg(external_id)::text IS NULL OR s.external_id = sqlc.narg(external_id))
	AND (sqlc.narg(display_name)::text IS NULL OR lower(u.name) = lower(sqlc.narg(display_name)))
	AND (sqlc.narg(active)::boolean IS NULL OR (u.status <> 'suspended') = sqlc.narg(active));

-- name: LockScimUser :one
-- For a change: two of the same user wait for each other.
SELECT sqlc.embed(u), coalesce(s.user_name, u.email)::text AS user_name, coalesce(s.external_id, '')::text AS external_id,
	coalesce(s.given_name, '')::text AS given_name, coalesce(s.family_name, '')::text AS family_name
FROM users u LEFT JOIN scim_users s ON s.user_id = u.id
WHERE u.id = $1 AND u.deleted_at IS NULL AND CASE WHEN s.user_id IS NULL THEN u.login_type = 'oidc' ELSE NOT s.removed END FOR UPDATE OF u;

-- name: UpsertScimUser :exec
INSERT INTO scim_users (user_id, user_name, external_id, given_name, family_name) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id) DO UPDATE SET user_name = excluded.user_name, external_id = excluded.external_id,
	given_name = excluded.given_name, family_name = excluded.family_name, removed = false;

-- name: FreeScimUserName :exec
-- A deleted user's name is free again.
DELETE FROM scim_users s USING users u WHERE u.id = s.user_id AND u.deleted_at IS NOT NULL AND lower(s.user_name) = lower(sqlc.arg(user_name)::text);

-- name: RemoveScimUser :exec
-- The provider no longer sees the user.
INSERT INTO scim_users (user_id, user_name, removed) SELECT u.id, u.email, true FROM users u WHERE u.id = $1
ON CONFLICT (user_id) DO UPDATE SET removed = true;

-- name: IsRemovedScimUser :one
-- Whether the provider removed a user, whom it may provision again.
SELECT EXISTS (SELECT FROM scim_users WHERE user_id = $1 AND removed);

-- name: UpdateScimProfile :one
UPDATE users SET email = $2, name = $3, updated_at = now() WHERE id = $1 RETURNING *;

-- name: ListScimGroups :many
-- The groups that an identity provider made. A null argument selects all.
SELECT sqlc.embed(g), s.external_id FROM groups g JOIN scim_groups s ON s.group_id = g.id
WHERE (sqlc.narg(id)::text IS NULL OR g.id::text = lower(sqlc.narg(id)))
	AND (sqlc.narg(display_name)::text IS NULL OR lower(g.display_name) = lower(sqlc.narg(display_name)))
	AND (sqlc.narg(external_id)::text IS NULL OR s.external_id = sqlc.narg(external_id))
ORDER BY g.created_at, g.id LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: CountScimGroups :one
SELECT count(*) FROM groups g JOIN scim_groups s ON s.group_id = g.id
WHERE (sqlc.narg(id)::text IS NULL OR g.id::text = lower(sqlc.narg(id)))
	AND (sqlc.narg(display_name)::text IS NULL OR lower(g.display_name) = lower(sqlc.narg(display_name)))
	AND (sqlc.narg(external_id)::text IS NULL OR s.external_id = sqlc.narg(external_id));

-- name: LockScimGroup :one
SELECT sqlc.embed(g), s.external_id FROM groups g JOIN scim_groups s ON s.group_id = g.id WHERE g.id = $1 FOR UPDATE OF g;

-- name: InsertScimGroup :one
INSERT INTO groups (id, organization_id, name, display_name, source) VALUES ($1, $2, $3, $3, 'oidc') RETURNING *;

-- name: InsertScimGroupLink :exec
INSERT INTO scim_groups (group_id, external_id) VALUES ($1, $2);

-- name: UpdateScimGroup :one
UPDATE groups SET name = $2, display_name = $2, updated_at = now() WHERE id = $1 RETURNING *;

-- name: UpdateScimGroupLink :exec
UPDATE scim_groups SET external_id = $2 WHERE group_id = $1;

-- name: DeleteScimGroup :execrows
DELETE FROM groups g USING scim_groups s WHERE s.group_id = g.id AND g.id = $1;

-- name: ListScimMembers :many
-- Of some groups, without deleted users.
SELECT m.group_id, m.user_id, coalesce(s.user_name, u.email)::text AS user_name
FROM group_members m JOIN users u ON u.id = m.user_id LEFT JOIN scim_users s ON s.user_id = u.id
WHERE m.group_id = ANY (sqlc.arg(groups)::uuid[]) AND u.deleted_at IS NULL ORDER BY m.group_id, m.created_at, m.user_id;

-- name: ListScimGroupsOf :many
-- The provisioned groups of some users.
SELECT m.user_id, g.id, g.display_name FROM group_members m JOIN groups g ON g.id = m.group_id JOIN scim_groups s ON s.group_id = g.id
WHERE m.user_id = ANY (sqlc.arg(users)::uuid[]) ORDER BY m.user_id, g.display_name;

-- name: AddScimMembers :execrows
-- Of the users, those that the identity provider may see. Returns how many of them exist, old members too.
INSERT INTO group_members (group_id, user_id)
SELECT sqlc.arg(group_id)::uuid, u.id FROM users u LEFT JOIN scim_users s ON s.user_id = u.id
WHERE u.id = ANY (sqlc.arg(users)::uuid[]) AND u.deleted_at IS NULL AND CASE WHEN s.user_id IS NULL THEN u.login_type = 'oidc' ELSE NOT s.removed END
ON CONFLICT (group_id, user_id) DO UPDATE SET user_id = excluded.user_id;

-- name: KeepScimMembers :exec
-- Removes all members but some.
DELETE FROM group_members WHERE group_id = sqlc.arg(group_id)::uuid AND user_id <> ALL (sqlc.arg(users)::uuid[]);
