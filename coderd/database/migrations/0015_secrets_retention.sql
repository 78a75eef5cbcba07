-- +goose Up

-- Users' Git keys and agents' host keys, encrypted like Terraform's states. Empty: the key is not encrypted yet and is in private_key,
-- which is empty afterwards.
ALTER TABLE git_ssh_keys ADD COLUMN sealed bytea NOT NULL DEFAULT '';
ALTER TABLE workspace_host_keys ADD COLUMN sealed bytea NOT NULL DEFAULT '';

-- Keys that an operator has given up: the server starts without them. What they encrypt stays as it is.
CREATE TABLE forgotten_state_keys (
	key_id bytea PRIMARY KEY CHECK (length(key_id) = 8),
	forgotten_at timestamptz NOT NULL DEFAULT now()
);

-- Finds source archives that no job refers to.
CREATE INDEX provisioner_jobs_file ON provisioner_jobs (file_id);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
