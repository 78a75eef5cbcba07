-- name: UpsertDevcontainer :execrows
-- Stores a dev container of a build. What its agent has reported stays. Affects no row if the id belongs to another agent.
INSERT INTO workspace_agent_devcontainers (id, agent_id, subagent_id, log_source_id, name, workspace_folder, config_path)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (id) DO UPDATE SET subagent_id = EXCLUDED.subagent_id, log_source_id = EXCLUDED.log_source_id, name = EXCLUDED.name,
	workspace_folder = EXCLUDED.workspace_folder, config_path = EXCLUDED.config_path
WHERE workspace_agent_devcontainers.agent_id = EXCLUDED.agent_id;

-- name: DeleteDevcontainersExcept :exec
DELETE FROM workspace_agent_devcontainers WHERE agent_id = $1 AND id <> ALL (sqlc.arg(ids)::uuid[]);

-- name: ListDevcontainers :many
-- Lists the dev containers that the given agents start, and those that they run in.
SELECT * FROM workspace_agent_devcontainers
WHERE agent_id = ANY (sqlc.arg(agent_ids)::uuid[]) OR subagent_id = ANY (sqlc.arg(agent_ids)::uuid[]) ORDER BY name, id;

-- name: LockDevcontainer :one
-- Locks a dev container of an agent that has not ended.
SELECT d.* FROM workspace_agent_devcontainers d JOIN workspace_agents a ON a.id = d.agent_id
WHERE d.id = $1 AND d.agent_id = $2 AND a.token_hash IS NOT NULL FOR UPDATE OF d;

-- name: SetDevcontainerState :exec
UPDATE workspace_agent_devcontainers SET status = $2, error = $3, container_id = $4, container_name = $5, image = $6 WHERE id = $1;

-- name: StopDevcontainers :exec
-- Records that the dev containers of agents that have ended are not running.
UPDATE workspace_agent_devcontainers SET status = 'stopped', error = '' WHERE agent_id = ANY (sqlc.arg(agent_ids)::uuid[]) AND status <> 'stopped';

-- name: AdmitSubagent :execrows
-- Gives the agent of a dev container a token. Affects no row unless it belongs to the newest build of the agent that starts the container.
UPDATE workspace_agents a SET token_hash = sqlc.arg(token_hash)::bytea, directory = $2, expanded_directory = '', lifecycle_state = 'created',
	lifecycle_changed_at = NULL, started_at = NULL, ready_at = NULL
FROM workspace_agents p
WHERE a.id = $1 AND p.id = a.parent_id AND p.workspace_id = a.workspace_id AND p.build_number = a.build_number AND p.token_hash IS NOT NULL;

-- name: RevokeSubagent :execrows
-- Ends the agent of a dev container and invalidates its token.
UPDATE workspace_agents SET token_hash = NULL, lifecycle_state = 'off', lifecycle_changed_at = now(),
	disconnected_at = CASE WHEN last_connected_at IS NOT NULL THEN COALESCE(disconnected_at, now()) END
WHERE id = $1 AND parent_id IS NOT NULL AND token_hash IS NOT NULL;
