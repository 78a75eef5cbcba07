-- name: ListStageTimings :many
-- Returns when each stage of a job wrote its first and its last line, in order.
SELECT stage, min(created_at)::timestamptz AS started_at, max(created_at)::timestamptz AS ended_at
FROM provisioner_job_logs WHERE job_id = $1
GROUP BY stage ORDER BY min(id);

-- name: ListResourceLines :many
-- Lists Terraform's lines about single resources, up to a limit.
SELECT created_at, output, stage FROM provisioner_job_logs
WHERE job_id = $1 AND source = 'provisioner' AND output ~ '^[^ ]+: (Creating|Destroying|Modifying|Reading|Creation complete|Destruction complete|Modifications complete|Read complete)'
ORDER BY id LIMIT 4000;

-- name: ListAgentTimings :many
-- Returns when the agents of a build connected.
SELECT id, name, created_at, first_connected_at, started_at, ready_at FROM workspace_agents
WHERE workspace_id = $1 AND build_number = $2 ORDER BY name;

-- name: ListScriptTimings :many
-- Returns when the scripts of a build's agents last ran.
SELECT s.display_name, s.run_on_start, s.run_on_stop, s.started_at, s.ended_at, coalesce(s.exit_code, 0)::int AS exit_code, s.timed_out, a.id AS agent_id, a.name AS agent_name
FROM workspace_agent_scripts s JOIN workspace_agents a ON a.id = s.agent_id
WHERE a.workspace_id = $1 AND a.build_number = $2 AND s.started_at IS NOT NULL AND s.ended_at IS NOT NULL ORDER BY s.started_at;
