-- +goose Up

-- The agent that starts the dev container in which this agent runs; NULL for the agents of machines and containers that Terraform makes.
-- Earlier servers do not set it: they have no such agents.
ALTER TABLE workspace_agents ADD COLUMN parent_id uuid REFERENCES workspace_agents ON DELETE CASCADE;
CREATE INDEX workspace_agents_parent ON workspace_agents (parent_id) WHERE parent_id IS NOT NULL;

-- The dev containers that agents start. The definition comes with the build; the agent reports the rest.
CREATE TABLE workspace_agent_devcontainers (
	id uuid PRIMARY KEY, -- the coder_devcontainer's
	agent_id uuid NOT NULL REFERENCES workspace_agents ON DELETE CASCADE, -- that starts it
	subagent_id uuid NOT NULL UNIQUE REFERENCES workspace_agents ON DELETE CASCADE, -- that runs in it
	log_source_id uuid NOT NULL REFERENCES workspace_agent_log_sources ON DELETE CASCADE,
	name text NOT NULL,
	workspace_folder text NOT NULL,
	config_path text NOT NULL DEFAULT '',
	status text NOT NULL DEFAULT 'starting' CHECK (status IN ('starting', 'running', 'stopped', 'error')),
	error text NOT NULL DEFAULT '',
	container_id text NOT NULL DEFAULT '', -- '' while there is none
	container_name text NOT NULL DEFAULT '',
	image text NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX workspace_agent_devcontainers_agent ON workspace_agent_devcontainers (agent_id);
CREATE TRIGGER workspace_agent_devcontainers_changed AFTER UPDATE ON workspace_agent_devcontainers FOR EACH ROW
	WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION workspace_agent_parts_event();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
