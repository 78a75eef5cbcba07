-- name: GetAppAgent :one
-- Returns the agent that an app's address names, or the first agent of the workspace's newest build outside dev containers if the
-- address names none. Names also occur in host names, so case does not matter.
SELECT a.id AS agent_id, a.name AS agent_name, a.token_hash, w.id AS workspace_id, w.name AS workspace_name, w.owner_id, w.organization_id, w.sharing, u.username AS owner_name,
	t.max_port_share_level
FROM users u
JOIN workspaces w ON w.owner_id = u.id AND w.deleted_at IS NULL
JOIN templates t ON t.id = w.template_id
JOIN workspace_agents a ON a.workspace_id = w.id
WHERE u.deleted_at IS NULL AND lower(u.username) = lower(sqlc.arg(owner)::text) AND lower(w.name) = lower(sqlc.arg(workspace)::text)
	AND (sqlc.arg(agent)::text = '' AND a.parent_id IS NULL OR lower(a.name) = lower(sqlc.arg(agent)::text))
ORDER BY a.build_number DESC, a.display_order, a.name LIMIT 1;

-- name: GetAgentKey :one
-- Returns the hash of an agent's token, with which visas for it are signed. Null once the agent was revoked.
SELECT token_hash FROM workspace_agents WHERE id = sqlc.arg(id);

-- name: GetApp :one
SELECT * FROM workspace_apps WHERE agent_id = $1 AND lower(slug) = lower(sqlc.arg(slug)::text);

-- name: GetKeyHolder :one
-- Returns the holder of a key that has not ended.
SELECT k.id, k.kind, k.scopes, k.allow_list, sqlc.embed(actors)
FROM api_keys k JOIN actors ON actors.id = k.user_id
WHERE k.id = $1 AND k.expires_at > now();

-- name: RedeemAppCode :execrows
-- Records that a code was redeemed, and removes some that have expired. No row means that it was redeemed before.
WITH old AS (
	DELETE FROM app_codes c WHERE c.hash IN (
		SELECT e.hash FROM app_codes e WHERE e.expires_at < now() ORDER BY e.expires_at LIMIT 100 FOR UPDATE SKIP LOCKED
	)
)
INSERT INTO app_codes (hash, expires_at) VALUES (sqlc.arg(hash), now() + make_interval(secs => sqlc.arg(life_seconds)::float8))
ON CONFLICT (hash) DO NOTHING;
