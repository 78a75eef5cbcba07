-- +goose Up

-- The SSH host key of an agent. It belongs to the workspace and the agent's name, so that it survives rebuilds that replace the
-- machine, and is known before the agent has connected for the first time.
CREATE TABLE workspace_host_keys (
	workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
	agent_name text NOT NULL,
	private_key text NOT NULL, -- OpenSSH's PEM form
	public_key text NOT NULL,  -- authorized_keys form
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (workspace_id, agent_name)
);
