-- name: ListGroupRows :many
-- Returns groups and their sizes. Everyone comes first in each organization.
SELECT sqlc.embed(g), o.name AS organization_name, o.display_name AS organization_display_name,
	(SELECT count(*) FROM organization_members m JOIN users u ON u.id = m.user_id AND u.deleted_at IS NULL
		WHERE m.organization_id = g.organization_id
			AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id))) AS total
FROM groups g JOIN organizations o ON o.id = g.organization_id
WHERE o.deleted_at IS NULL
	AND (sqlc.narg(ids)::uuid[] IS NULL OR g.id = ANY (sqlc.narg(ids)::uuid[]))
	AND (sqlc.arg(extent_all)::boolean OR g.organization_id = ANY (sqlc.arg(extent_organizations)::uuid[]))
	AND (sqlc.narg(organization_id)::uuid IS NULL OR g.organization_id = sqlc.narg(organization_id))
	AND (sqlc.arg(search)::text = '' OR strpos(lower(g.name), lower(sqlc.arg(search)::text)) > 0
		OR strpos(lower(g.display_name), lower(sqlc.arg(search)::text)) > 0)
	AND (sqlc.narg(member_id)::uuid IS NULL OR EXISTS (SELECT FROM organization_members m
		WHERE m.organization_id = g.organization_id AND m.user_id = sqlc.narg(member_id)
			AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id))))
ORDER BY lower(o.name), g.id = g.organization_id DESC, lower(g.name), g.id;

-- name: ListGroupMembers :many
-- Returns the first members of each group, by name. All members of the organization are members of Everyone.
SELECT g.id AS group_id, sqlc.embed(u)
FROM groups g
CROSS JOIN LATERAL (
	SELECT u.id FROM organization_members m JOIN users u ON u.id = m.user_id AND u.deleted_at IS NULL
	WHERE m.organization_id = g.organization_id
		AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id))
	ORDER BY lower(u.username) LIMIT NULLIF(sqlc.arg(page_limit)::int, 0) OFFSET sqlc.arg(page_offset)::int
) AS p
JOIN users u ON u.id = p.id
WHERE g.id = ANY (sqlc.arg(ids)::uuid[])
ORDER BY g.id, lower(u.username);

-- name: GetGroup :one
SELECT * FROM groups WHERE id = $1;

-- name: GetGroupByName :one
SELECT * FROM groups WHERE organization_id = $1 AND lower(name) = lower(sqlc.arg(name)::text);

-- name: LockGroup :one
-- Locks a group before it is changed.
SELECT * FROM groups WHERE id = $1 FOR UPDATE;

-- name: InsertGroup :one
INSERT INTO groups (id, organization_id, name, display_name, avatar_url, quota_allowance) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;

-- name: UpdateGroup :one
UPDATE groups SET name = $2, display_name = $3, avatar_url = $4, quota_allowance = $5, updated_at = now() WHERE id = $1 RETURNING *;

-- name: DeleteGroup :exec
DELETE FROM groups WHERE id = $1;

-- name: AddGroupMembers :exec
INSERT INTO group_members (group_id, user_id) SELECT sqlc.arg(group_id), unnest(sqlc.arg(users)::uuid[]) ON CONFLICT DO NOTHING;

-- name: RemoveGroupMembers :exec
DELETE FROM group_members WHERE group_id = $1 AND user_id = ANY (sqlc.arg(users)::uuid[]);

-- name: HoldOrganizationMembers :many
-- Returns those of the users who are members. They stay members until the transaction ends.
SELECT m.user_id FROM organization_members m JOIN users u ON u.id = m.user_id
WHERE m.organization_id = $1 AND m.user_id = ANY (sqlc.arg(users)::uuid[]) AND u.deleted_at IS NULL
FOR SHARE OF m;

-- name: HoldGroups :many
-- Returns those of the groups that belong to the organization. They are not deleted until the transaction ends.
SELECT id FROM groups WHERE organization_id = $1 AND id = ANY (sqlc.arg(ids)::uuid[]) FOR SHARE;

-- name: ListSharingUsers :many
-- Returns the members of the organization that have one of the ids, or all of them. A username that is the search comes first.
SELECT u.* FROM organization_members m JOIN users u ON u.id = m.user_id AND u.deleted_at IS NULL
WHERE m.organization_id = $1 AND (sqlc.narg(ids)::uuid[] IS NULL OR u.id = ANY (sqlc.narg(ids)::uuid[]))
	AND (sqlc.arg(search)::text = '' OR strpos(lower(u.username), lower(sqlc.arg(search)::text)) > 0 OR strpos(lower(u.name), lower(sqlc.arg(search)::text)) > 0)
ORDER BY lower(u.username) = lower(sqlc.arg(search)::text) DESC, lower(u.username) LIMIT NULLIF(sqlc.arg(page_limit)::int, 0);

-- name: ListUserPrincipals :many
-- Returns the ids by which objects can be shared with a user; see rbac.Actor.Principals.
SELECT sqlc.arg(user_id)::uuid AS id
UNION ALL SELECT m.organization_id FROM organization_members m WHERE m.user_id = sqlc.arg(user_id)
UNION ALL SELECT g.group_id FROM group_members g WHERE g.user_id = sqlc.arg(user_id);

-- name: UpdateWorkspaceSharing :one
UPDATE workspaces SET sharing = $2, updated_at = now() WHERE id = $1 RETURNING *;

-- name: UpdateTemplateSharing :one
UPDATE templates SET sharing = $2, updated_at = now() WHERE id = $1 RETURNING *;

-- name: IsTemplateSharedWith :one
-- Reports whether a template is shared with a user, who must be a member of its organization.
SELECT EXISTS (SELECT FROM templates t
	JOIN organization_members m ON m.organization_id = t.organization_id AND m.user_id = sqlc.arg(user_id)::uuid
	WHERE t.id = sqlc.arg(id) AND t.sharing ?| (ARRAY[m.user_id::text, m.organization_id::text]
		|| ARRAY(SELECT g.group_id::text FROM group_members g WHERE g.user_id = m.user_id)));

-- name: ListTemplatesOfFile :many
-- Returns the templates that have a version made from a file.
SELECT DISTINCT ON (t.id) t.* FROM provisioner_jobs j
JOIN template_versions v ON v.job_id = j.id
JOIN templates t ON t.id = v.template_id AND t.deleted_at IS NULL
WHERE j.file_id = $1
ORDER BY t.id;

-- name: ListTemplatesSharedWith :many
-- Returns the templates that are shared with one of the ids, at any level.
SELECT * FROM templates WHERE deleted_at IS NULL AND organization_id = ANY (sqlc.arg(organizations)::uuid[])
	AND sharing ?| sqlc.arg(principals)::text[];

-- name: ListAdministeredTemplates :many
-- The templates that members of groups administer, by way of the group: of some groups of an organization, or of all.
SELECT t.id, t.name, t.organization_id, t.sharing, g.name AS group_name
FROM groups g JOIN templates t ON t.organization_id = g.organization_id AND t.deleted_at IS NULL AND t.sharing ->> g.id::text = 'admin'
WHERE g.organization_id = sqlc.arg(organization_id) AND g.id <> g.organization_id
	AND (sqlc.narg(groups)::uuid[] IS NULL OR g.id = ANY (sqlc.narg(groups)::uuid[]))
ORDER BY t.name, g.name;
