-- +goose Up

-- Named values that a user's workspaces get as an environment variable, a file or both. Values are encrypted with the keys of Terraform's
-- states, which are not in the database.
CREATE TABLE user_secrets (
	id uuid PRIMARY KEY,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	name text NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
	description text NOT NULL DEFAULT '',
	env_name text NOT NULL DEFAULT '',  -- '': not an environment variable
	file_path text NOT NULL DEFAULT '', -- '': not a file
	enabled boolean NOT NULL DEFAULT true,
	sealed bytea NOT NULL CHECK (length(sealed) > 0), -- the value, encrypted
	size integer NOT NULL CHECK (size >= 0),          -- of the value, bytes
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX user_secrets_name ON user_secrets (user_id, name);
CREATE UNIQUE INDEX user_secrets_env ON user_secrets (user_id, env_name) WHERE env_name <> '';
CREATE UNIQUE INDEX user_secrets_file ON user_secrets (user_id, file_path) WHERE file_path <> '';

-- +goose Down
-- Nothing: an older server does not discard a newer server's data.
SELECT 1;
