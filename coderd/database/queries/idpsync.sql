-- name: ListSyncSettings :many
-- The settings of organization sync, and those of groups and roles in some organizations.
SELECT * FROM idp_sync WHERE organization_id IS NULL OR organization_id = ANY (sqlc.arg(organizations)::uuid[]);

-- name: InsertSyncSettingsOnce :exec
-- Stores settings unless there are some. Lock the row afterwards.
INSERT INTO idp_sync (kind, organization_id, settings) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING;

-- name: LockSyncSettings :one
SELECT settings FROM idp_sync WHERE kind = $1 AND organization_id IS NOT DISTINCT FROM sqlc.narg(organization_id)::uuid FOR UPDATE;

-- name: UpdateSyncSettings :exec
UPDATE idp_sync SET settings = sqlc.arg(settings), updated_at = now()
WHERE kind = $1 AND organization_id IS NOT DISTINCT FROM sqlc.narg(organization_id)::uuid;

-- name: LockUserLink :one
-- The identity of an account. Of several sign-ins and renewals of one user, one at a time changes memberships.
SELECT * FROM user_links WHERE user_id = $1 AND login_type = $2 FOR UPDATE;

-- name: UpdateUserLinkClaims :exec
UPDATE user_links SET claims = $3 WHERE user_id = $1 AND login_type = $2;

-- name: UpdateUserLinkSynced :exec
UPDATE user_links SET synced = $3 WHERE user_id = $1 AND login_type = $2;

-- name: LockUserRoles :one
-- The account, for a transaction that changes its roles or memberships.
SELECT * FROM users WHERE id = $1 AND deleted_at IS NULL FOR NO KEY UPDATE;

-- name: ListSyncGroups :many
-- The groups of some organizations that have one of the names or ids, or whose member the user is. Everyone is not among them.
SELECT g.id, g.organization_id, g.name, g.source, EXISTS (SELECT FROM scim_groups s WHERE s.group_id = g.id) AS provisioned,
	EXISTS (SELECT FROM group_members m WHERE m.group_id = g.id AND m.user_id = sqlc.arg(user_id)) AS member
FROM groups g
WHERE g.organization_id = ANY (sqlc.arg(organizations)::uuid[]) AND g.id <> g.organization_id
	AND (g.id = ANY (sqlc.arg(ids)::uuid[])
		OR lower(g.name) IN (SELECT lower(n) FROM unnest(sqlc.arg(names)::text[]) AS n)
		OR EXISTS (SELECT FROM group_members m WHERE m.group_id = g.id AND m.user_id = sqlc.arg(user_id)))
ORDER BY g.id;

-- name: HoldSyncGroups :many
-- Groups whose members a transaction changes: they are not deleted until it ends. In the order of their ids.
SELECT * FROM groups WHERE id = ANY (sqlc.arg(ids)::uuid[]) AND id <> organization_id ORDER BY id FOR KEY SHARE;

-- name: InsertSyncedGroup :one
-- No row if the organization has a group of that name.
INSERT INTO groups (id, organization_id, name, source) VALUES ($1, $2, $3, 'oidc') ON CONFLICT (organization_id, lower(name)) DO NOTHING RETURNING *;

-- name: ListRolesOf :many
-- The custom roles of some organizations.
SELECT * FROM organization_roles WHERE organization_id = ANY (sqlc.arg(organizations)::uuid[]) ORDER BY organization_id, name;

-- name: ListClaimNames :many
-- The names of the claims that the identity provider sent for members of an organization, or for all users.
SELECT DISTINCT k::text AS name FROM user_links l JOIN users u ON u.id = l.user_id AND u.deleted_at IS NULL, jsonb_object_keys(l.claims) AS k
WHERE l.login_type = 'oidc' AND k <> ALL (sqlc.arg(without)::text[]) AND (sqlc.narg(organization_id)::uuid IS NULL
	OR EXISTS (SELECT FROM organization_members m WHERE m.organization_id = sqlc.narg(organization_id) AND m.user_id = l.user_id))
ORDER BY 1 LIMIT sqlc.arg(max_rows);

-- name: ListClaimValues :many
-- The texts in one claim of the members of an organization, or of all users.
SELECT DISTINCT v::text AS value FROM user_links l JOIN users u ON u.id = l.user_id AND u.deleted_at IS NULL,
	jsonb_path_query(l.claims -> sqlc.arg(claim)::text, 'lax $[*] ? (@.type() == "string")') AS j, LATERAL (SELECT j #>> '{}') AS t (v)
WHERE l.login_type = 'oidc' AND (sqlc.narg(organization_id)::uuid IS NULL
	OR EXISTS (SELECT FROM organization_members m WHERE m.organization_id = sqlc.narg(organization_id) AND m.user_id = l.user_id))
ORDER BY 1 LIMIT sqlc.arg(max_rows);
