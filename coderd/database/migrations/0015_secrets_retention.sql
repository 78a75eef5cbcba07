-- +goose Up

-- Users' keys for git and agents' host keys, encrypted as Terraform's states are. Empty: not encrypted yet, the key is in private_key,
-- which is empty afterwards.
ALTER TABLE git_ssh_keys ADD COLUMN sealed bytea NOT NULL DEFAULT '';
ALTER TABLE workspace_host_keys ADD COLUMN sealed bytea NOT NULL DEFAULT '';

-- Keys that an operator has given up: the server starts although it lacks them. What they encrypt stays as it is.
CREATE TABLE forgotten_state_keys (
	key_id bytea PRIMARY KEY CHECK (length(key_id) = 8),
	forgotten_at timestamptz NOT NULL DEFAULT now()
);

-- For finding source archives that no job refers to.
CREATE INDEX provisioner_jobs_file ON provisioner_jobs (file_id);

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
