-- name: ListTemplateConsents :many
-- Lists the templates that a user consents to.
SELECT c.created_at, t.id AS template_id, t.name AS template_name, t.display_name AS template_display_name, t.icon AS template_icon,
	o.id AS organization_id, o.name AS organization_name
FROM template_consents c JOIN templates t ON t.id = c.template_id AND t.deleted_at IS NULL JOIN organizations o ON o.id = t.organization_id
WHERE c.user_id = $1 ORDER BY lower(t.name), o.name;

-- name: HoldTemplateConsent :one
-- Reports whether a user consents to a template. A consent that exists is not revoked until the transaction ends, so that the revocation also ends
-- what the transaction gives away.
SELECT EXISTS (SELECT FROM (SELECT FROM template_consents WHERE user_id = $1 AND template_id = $2 FOR SHARE) c);

-- name: InsertTemplateConsent :execrows
INSERT INTO template_consents (user_id, template_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: DeleteTemplateConsent :execrows
DELETE FROM template_consents WHERE user_id = $1 AND template_id = $2;

-- name: DeleteUserConsents :exec
DELETE FROM template_consents WHERE user_id = $1;

-- name: DeleteConsentsToTemplate :exec
DELETE FROM template_consents WHERE template_id = $1;

-- name: DeleteTemplateWorkspaceKeys :exec
-- Ends the sessions that a user's workspaces of a template were given.
DELETE FROM api_keys k USING workspaces w
WHERE w.id = k.workspace_id AND k.kind = 'workspace' AND k.user_id = $1 AND w.template_id = $2;

-- name: WithholdFromWorkspaces :many
-- Marks the newest builds of a user's workspaces of a template as builds without the owner's credentials, and returns the workspaces.
UPDATE workspace_builds b SET credentials_withheld = true FROM workspaces w
WHERE b.id = w.latest_build_id AND w.owner_id = $1 AND w.template_id = $2 AND w.deleted_at IS NULL AND NOT b.credentials_withheld
RETURNING w.id;

-- name: SetBuildWithheld :exec
-- Records whether the owner's credentials were left out of a build.
UPDATE workspace_builds SET credentials_withheld = $2 WHERE id = $1;

-- name: NotifyConsent :exec
-- Tells the running agents of a user's workspaces of a template to get their manifest again, when the transaction commits.
SELECT pg_notify('agents_manifest', a.id::text) FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id
WHERE w.owner_id = $1 AND w.template_id = $2 AND w.deleted_at IS NULL AND a.token_hash IS NOT NULL AND a.user_data AND a.complete;
