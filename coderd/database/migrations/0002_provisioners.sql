-- +goose Up

-- A credential for provisioners with fixed tags.
CREATE TABLE provisioner_keys (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations,
	name text NOT NULL CHECK (name ~ '^[a-zA-Z0-9]+([._-][a-zA-Z0-9]+)*$' AND length(name) <= 64),
	tags jsonb NOT NULL DEFAULT '{}',
	secret_hash bytea NOT NULL UNIQUE, -- SHA-256
	created_by uuid NOT NULL REFERENCES users,
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX provisioner_keys_name ON provisioner_keys (organization_id, lower(name));

ALTER TABLE provisioner_daemons
	ADD COLUMN key_id uuid REFERENCES provisioner_keys ON DELETE SET NULL, -- the key that it joined with; null if it joined in another way
	ADD COLUMN key_name text NOT NULL DEFAULT ''; -- the key's name, or the way in which it joined: built-in, psk or user-auth

-- How to compute tags that depend on a build's parameters; null if none do.
ALTER TABLE template_version_tags ADD COLUMN program jsonb;

ALTER TABLE workspace_builds
	-- Tags that the build asked for in addition to those of its template.
	ADD COLUMN provisioner_tags jsonb NOT NULL DEFAULT '{}',
	-- The id of the key that the state is encrypted with; empty if it is not encrypted.
	ADD COLUMN state_key bytea NOT NULL GENERATED ALWAYS AS
		(CASE WHEN substring(state FROM 1 FOR 5) = '\x00636d7301'::bytea THEN substring(state FROM 6 FOR 8) ELSE ''::bytea END) STORED;
ALTER TABLE workspace_builds ALTER COLUMN state SET STORAGE EXTERNAL; -- encrypted data cannot be compressed
CREATE INDEX workspace_builds_state_key ON workspace_builds (state_key) WHERE state <> '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
