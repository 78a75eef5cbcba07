-- name: GetDefaultOrganization :one
SELECT * FROM organizations WHERE is_default;

-- name: ListOrganizations :many
SELECT * FROM organizations ORDER BY is_default DESC, name;
