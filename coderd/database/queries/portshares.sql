-- name: ListPortShares :many
SELECT * FROM workspace_port_shares WHERE workspace_id = $1 ORDER BY agent_name, port;

-- name: GetPortShare :one
SELECT * FROM workspace_port_shares WHERE workspace_id = $1 AND lower(agent_name) = lower(sqlc.arg(agent_name)::text) AND port = $2;

-- name: GetPortShareLevel :one
SELECT share_level FROM workspace_port_shares WHERE workspace_id = $1 AND lower(agent_name) = lower(sqlc.arg(agent_name)::text) AND port = $2;

-- name: GetAgentNameOfWorkspace :one
-- Returns the name of an agent as its newest build spells it; case does not matter.
SELECT name FROM workspace_agents WHERE workspace_id = $1 AND lower(name) = lower(sqlc.arg(name)::text) ORDER BY build_number DESC LIMIT 1;

-- name: CountPortShares :one
SELECT count(*) FROM workspace_port_shares WHERE workspace_id = $1;

-- name: UpsertPortShare :one
INSERT INTO workspace_port_shares (workspace_id, agent_name, port, share_level, protocol) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (workspace_id, agent_name, port) DO UPDATE SET share_level = EXCLUDED.share_level, protocol = EXCLUDED.protocol
RETURNING *;

-- name: DeletePortShare :one
DELETE FROM workspace_port_shares WHERE workspace_id = $1 AND lower(agent_name) = lower(sqlc.arg(agent_name)::text) AND port = $2 RETURNING *;

-- name: UpdateTemplateCeiling :one
UPDATE templates SET max_port_share_level = $2, updated_at = now() WHERE id = $1 RETURNING *;

-- name: DeletePortSharesAbove :exec
-- Ends the sharing of ports of a template's workspaces at the given levels, and announces to pages that these workspaces have changed.
WITH ended AS (
	DELETE FROM workspace_port_shares p USING workspaces w
	WHERE w.id = p.workspace_id AND w.template_id = $1 AND p.share_level = ANY (sqlc.arg(levels)::text[])
	RETURNING p.workspace_id
)
SELECT notify_event('workspace', w.id, w.owner_id) FROM workspaces w WHERE w.id IN (SELECT workspace_id FROM ended);

-- name: ListSharingOfImport :many
-- Lists the levels at which the apps of an imported version are shared.
SELECT DISTINCT app.sharing_level FROM workspace_apps app
JOIN workspace_agents a ON a.id = app.agent_id JOIN workspace_resources r ON r.id = a.resource_id
WHERE r.job_id = $1;
