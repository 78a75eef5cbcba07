-- ID tokens of workspaces and builds (coderd/identity).

-- name: GetIdentityOfAgent :one
-- Returns what an ID token says of an agent, and for whom its template allows tokens. Whether the agent may have one: GetAdmittedAgent.
SELECT a.name AS agent, w.id AS workspace_id, w.name AS workspace, o.id AS organization_id, o.name AS organization,
	t.id AS template_id, t.name AS template, t.identity_audiences,
	u.id AS owner_id, u.username AS owner, u.email AS owner_email, b.build_number, b.transition
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
JOIN organizations o ON o.id = w.organization_id
JOIN templates t ON t.id = w.template_id
JOIN users u ON u.id = w.owner_id
JOIN LATERAL (
	SELECT wb.build_number, wb.transition FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = w.id AND j.started_at IS NOT NULL ORDER BY wb.build_number DESC LIMIT 1
) b ON true
WHERE a.id = $1;

-- name: UpdateTemplateIdentity :one
-- Changes for whom workspaces of a template get ID tokens, and its builds.
UPDATE templates SET identity_audiences = $2, identity_build_audience = $3, updated_at = now() WHERE id = $1 RETURNING *;
