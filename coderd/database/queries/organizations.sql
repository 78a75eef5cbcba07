-- name: GetDefaultOrganization :one
SELECT * FROM organizations WHERE is_default;

-- name: ListOrganizations :many
-- Lists the organizations that an actor may see; see rbac.Extent.
SELECT * FROM organizations
WHERE deleted_at IS NULL AND (sqlc.arg(all_of_them)::boolean OR id = ANY (sqlc.arg(ids)::uuid[]))
ORDER BY is_default DESC, name;

-- name: InsertOrganization :one
INSERT INTO organizations (id, name, display_name, description, icon) VALUES ($1, $2, $3, $4, $5) RETURNING *;

-- name: UpdateOrganization :one
UPDATE organizations SET name = $2, display_name = $3, description = $4, icon = $5, updated_at = now()
WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: LockOrganization :one
-- The living organization, for a transaction that deletes it. What HoldOrganization holds comes before, or not at all.
SELECT * FROM organizations WHERE id = $1 AND deleted_at IS NULL FOR UPDATE;

-- name: HoldOrganization :one
-- The living organization, for a transaction that adds to it something which keeps it from being deleted.
SELECT id FROM organizations WHERE id = $1 AND deleted_at IS NULL FOR KEY SHARE;

-- name: HoldOrganizationSharing :one
-- Reports whether sharing is off in an organization, for a transaction that shares a workspace or a port. Take it before the workspace's lock.
SELECT sharing_disabled FROM organizations WHERE id = $1 FOR SHARE;

-- name: SetOrganizationSharing :one
-- Waits for the transactions that hold HoldOrganizationSharing.
UPDATE organizations SET sharing_disabled = $2, updated_at = now() WHERE id = $1 AND deleted_at IS NULL RETURNING *;

-- name: ListSharedWorkspaces :many
-- The workspaces of an organization that are shared, or have a shared port, locked in the order of their ids.
SELECT * FROM workspaces w WHERE w.organization_id = $1 AND w.deleted_at IS NULL
	AND (w.sharing <> '{}' OR EXISTS (SELECT FROM workspace_port_shares p WHERE p.workspace_id = w.id))
ORDER BY w.id FOR UPDATE OF w;

-- name: CountOrganizationUses :one
-- What keeps an organization from being deleted. Built-in provisioners serve all organizations and do not count.
SELECT
	(SELECT count(*) FROM templates t WHERE t.organization_id = $1 AND t.deleted_at IS NULL) AS templates,
	(SELECT count(*) FROM workspaces w WHERE w.organization_id = $1 AND w.deleted_at IS NULL) AS workspaces,
	(SELECT count(*) FROM provisioner_keys k WHERE k.organization_id = $1) AS provisioner_keys,
	(SELECT count(*) FROM provisioner_daemons d WHERE d.organization_id = $1 AND d.online AND NOT d.built_in) AS provisioners;

-- name: DeleteOrganization :exec
-- The row stays: jobs and deleted templates refer to it. The name is free again.
UPDATE organizations SET deleted_at = now(), updated_at = now() WHERE id = $1;

-- name: DeleteOrganizationMembers :exec
DELETE FROM organization_members WHERE organization_id = $1;

-- name: DeleteOrganizationGroups :exec
DELETE FROM groups WHERE organization_id = $1;

-- name: DeleteOrganizationRoles :exec
DELETE FROM organization_roles WHERE organization_id = $1;

-- name: ListMemberships :many
-- The organizations of users, and their roles there.
SELECT m.* FROM organization_members m JOIN organizations o ON o.id = m.organization_id
WHERE m.user_id = ANY (sqlc.arg(users)::uuid[]) AND o.deleted_at IS NULL ORDER BY o.is_default DESC, lower(o.name);

-- name: ListUserOrganizations :many
-- The organizations that a user is a member of, as far as an actor may see them.
SELECT o.* FROM organizations o JOIN organization_members m ON m.organization_id = o.id
WHERE m.user_id = $1 AND o.deleted_at IS NULL AND (sqlc.arg(all_of_them)::boolean OR o.id = ANY (sqlc.arg(ids)::uuid[]))
ORDER BY o.is_default DESC, o.name;

-- name: ListOrganizationMembers :many
-- One page by name, with the number of all that match. A username that is the search comes first. After a user, the page begins where that
-- user is or would be.
WITH found AS (SELECT m.user_id, count(*) OVER () AS total FROM organization_members m JOIN users u ON u.id = m.user_id
WHERE m.organization_id = $1 AND u.deleted_at IS NULL
	AND (sqlc.arg(active)::boolean = false OR u.status <> 'suspended')
	AND (sqlc.arg(search)::text = '' OR strpos(lower(u.username), lower(sqlc.arg(search)::text)) > 0 OR strpos(lower(u.name), lower(sqlc.arg(search)::text)) > 0))
SELECT sqlc.embed(u), sqlc.embed(m), found.total
FROM found JOIN users u ON u.id = found.user_id JOIN organization_members m ON m.organization_id = $1 AND m.user_id = found.user_id
WHERE sqlc.narg(after_id)::uuid IS NULL OR (lower(u.username) <> lower(sqlc.arg(search)::text), lower(u.username))
	> (SELECT lower(a.username) <> lower(sqlc.arg(search)::text), lower(a.username) FROM users a WHERE a.id = sqlc.narg(after_id))
ORDER BY lower(u.username) = lower(sqlc.arg(search)::text) DESC, lower(u.username) LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: GetOrganizationMember :one
SELECT * FROM organization_members WHERE organization_id = $1 AND user_id = $2;

-- name: HoldOrganizationMember :one
-- The membership, for a transaction that gives the member something which keeps them from being removed.
SELECT user_id FROM organization_members WHERE organization_id = $1 AND user_id = $2 FOR KEY SHARE;

-- name: LockOrganizationMember :one
-- The membership, for a transaction that removes it or changes its roles.
SELECT * FROM organization_members WHERE organization_id = $1 AND user_id = $2 FOR UPDATE;

-- name: InsertOrganizationMember :one
-- No row if the user is a member already.
INSERT INTO organization_members (organization_id, user_id, roles) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING *;

-- name: UpdateOrganizationMemberRoles :one
UPDATE organization_members SET roles = $3, updated_at = now() WHERE organization_id = $1 AND user_id = $2 RETURNING *;

-- name: DeleteOrganizationMember :exec
-- A trigger takes the user out of the organization's groups and of what is shared with them there.
DELETE FROM organization_members WHERE organization_id = $1 AND user_id = $2;

-- name: ListMemberGroupNames :many
-- The groups of an organization that a user was added to: not Everyone, which all members belong to.
SELECT g.name FROM groups g JOIN group_members x ON x.group_id = g.id AND x.user_id = sqlc.arg(user_id)
WHERE g.organization_id = sqlc.arg(organization_id) AND g.id <> g.organization_id ORDER BY lower(g.name);

-- name: CountMemberWorkspaces :one
SELECT count(*) FROM workspaces WHERE organization_id = $1 AND owner_id = $2 AND deleted_at IS NULL;

-- name: ListOrganizationRoles :many
SELECT * FROM organization_roles WHERE organization_id = $1 ORDER BY name;

-- name: LockOrganizationRole :one
SELECT * FROM organization_roles WHERE organization_id = $1 AND name = $2 FOR UPDATE;

-- name: HoldOrganizationRoles :many
-- Roles that a transaction assigns: they can be neither deleted nor changed until it ends.
SELECT * FROM organization_roles WHERE organization_id = $1 AND name = ANY (sqlc.arg(names)::text[]) ORDER BY name FOR SHARE;

-- name: InsertOrganizationRole :one
INSERT INTO organization_roles (organization_id, name, display_name, powers) VALUES ($1, $2, $3, $4) RETURNING *;

-- name: UpdateOrganizationRole :one
UPDATE organization_roles SET display_name = $3, powers = $4, updated_at = now() WHERE organization_id = $1 AND name = $2 RETURNING *;

-- name: DeleteOrganizationRole :exec
DELETE FROM organization_roles WHERE organization_id = $1 AND name = $2;

-- name: ListMembersWithRole :many
-- The members who have a role, locked in the order of their ids.
SELECT sqlc.embed(u), sqlc.embed(m) FROM organization_members m JOIN users u ON u.id = m.user_id
WHERE m.organization_id = $1 AND sqlc.arg(role)::text = ANY (m.roles) ORDER BY m.user_id FOR UPDATE OF m;

-- name: GetTemplateObject :one
-- What decides who may do what to a template.
SELECT organization_id, sharing FROM templates WHERE id = $1 AND deleted_at IS NULL;

-- name: GetWorkspaceObject :one
-- What decides who may do what to a workspace.
SELECT owner_id, organization_id, sharing FROM workspaces WHERE id = $1 AND deleted_at IS NULL;

-- name: GetGroupOrganization :one
SELECT organization_id FROM groups WHERE id = $1;

-- name: InviteToOrganization :one
-- Invites a user, or extends their invitation. No row if the user is a member already, or an invitation of the same user by someone
-- exists that has not expired.
INSERT INTO organization_invitations AS i (organization_id, user_id, invited_by, expires_at)
SELECT sqlc.arg(organization_id), sqlc.arg(user_id), sqlc.arg(invited_by), sqlc.arg(expires_at)
WHERE NOT EXISTS (SELECT 1 FROM organization_members m WHERE m.organization_id = sqlc.arg(organization_id) AND m.user_id = sqlc.arg(user_id))
ON CONFLICT (organization_id, user_id) DO UPDATE SET invited_by = excluded.invited_by, created_at = now(), expires_at = excluded.expires_at
WHERE i.expires_at <= now()
RETURNING *;

-- name: ListInvitations :many
-- The open invitations to an organization, or of a user. Those of users who became members in another way are not open.
SELECT sqlc.embed(i), sqlc.embed(o), u.username, u.name, by.username AS inviter
FROM organization_invitations i
JOIN organizations o ON o.id = i.organization_id AND o.deleted_at IS NULL
JOIN users u ON u.id = i.user_id AND u.deleted_at IS NULL
JOIN users by ON by.id = i.invited_by
WHERE (sqlc.narg(organization_id)::uuid IS NULL OR i.organization_id = sqlc.narg(organization_id)::uuid)
	AND (sqlc.narg(user_id)::uuid IS NULL OR i.user_id = sqlc.narg(user_id)::uuid)
	AND i.expires_at > now()
	AND NOT EXISTS (SELECT 1 FROM organization_members m WHERE m.organization_id = i.organization_id AND m.user_id = i.user_id)
ORDER BY lower(o.name), lower(u.username);

-- name: TakeInvitation :one
-- Ends an open invitation, for a transaction that answers or withdraws it. No row if there is none.
DELETE FROM organization_invitations i USING organizations o
WHERE i.organization_id = sqlc.arg(organization_id) AND i.user_id = sqlc.arg(user_id) AND i.expires_at > now() AND o.id = i.organization_id AND o.deleted_at IS NULL
RETURNING i.*;

-- name: EndInvitations :exec
-- Deletes the invitations to an organization that have expired, and that of a user who was added to it.
DELETE FROM organization_invitations WHERE organization_id = sqlc.arg(organization_id) AND (expires_at <= now() OR user_id = sqlc.narg(user_id));
