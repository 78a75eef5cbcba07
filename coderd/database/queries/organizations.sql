-- name: GetDefaultOrganization :one
SELECT * FROM organizations WHERE is_default;

-- name: ListOrganizations :many
-- Lists the organizations that an actor may see; see rbac.Extent.
SELECT * FROM organizations
WHERE deleted_at IS NULL AND (sqlc.arg(all_of_them)::boolean OR id = ANY (sqlc.arg(ids)::uuid[]))
ORDER BY is_default DESC, name;

-- name: AddOrganizationMember :exec
-- Adds a user without roles. It does not change an existing member.
INSERT INTO organization_members (organization_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;
