-- +goose Up

-- Whether an agent is connected, as of now, in the words of the API. This and agent_problem are the only definitions: lists, filters and metrics
-- ask them, and so does what the API shows of an agent. PostgreSQL puts them into the query as if they were written there.
CREATE FUNCTION agent_status(a workspace_agents) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
	SELECT CASE
		WHEN a.last_connected_at IS NOT NULL AND a.disconnected_at IS NULL AND a.awaited_build IS NULL THEN 'connected'
		WHEN a.last_connected_at IS NOT NULL AND a.disconnected_at IS NULL THEN 'connecting' -- it is connected, but not yet its new owner's
		WHEN a.first_connected_at IS NOT NULL THEN 'disconnected'
		WHEN a.connection_timeout_seconds > 0 AND now() - a.created_at > make_interval(secs => a.connection_timeout_seconds) THEN 'timeout'
		ELSE 'connecting'
	END
$$;

-- Why a person has to act for an agent, and '' if the agent is healthy. The first that applies.
CREATE FUNCTION agent_problem(a workspace_agents) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE AS $$
	SELECT CASE
		WHEN agent_status(a) <> 'connected' AND a.lifecycle_state = 'off' THEN 'off'
		WHEN agent_status(a) <> 'connected' AND a.startup_problem <> '' THEN 'startup'
		WHEN agent_status(a) IN ('timeout', 'disconnected') THEN agent_status(a)
		WHEN a.lifecycle_state IN ('start_error', 'start_timeout') THEN 'scripts'
		WHEN a.lifecycle_state IN ('shutting_down', 'shutdown_timeout', 'shutdown_error', 'off') THEN 'shutdown'
		ELSE ''
	END
$$;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
