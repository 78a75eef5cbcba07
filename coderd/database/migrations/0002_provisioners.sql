-- +goose Up

-- A credential for provisioners whose tags its daemons cannot choose.
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
	ADD COLUMN key_id uuid REFERENCES provisioner_keys ON DELETE SET NULL, -- by which it joined, null for other ways
	ADD COLUMN key_name text NOT NULL DEFAULT ''; -- of that key, or the way: built-in, psk, user-auth

-- How tags that depend on a build's parameters are computed; null when they do not.
ALTER TABLE template_version_tags ADD COLUMN program jsonb;

ALTER TABLE workspace_builds
	-- Asked for with the build, beside those of its template.
	ADD COLUMN provisioner_tags jsonb NOT NULL DEFAULT '{}',
	-- The id of the key that the state is encrypted with; empty when it is not encrypted.
	ADD COLUMN state_key bytea NOT NULL GENERATED ALWAYS AS
		(CASE WHEN substring(state FROM 1 FOR 5) = '\x00636d7301'::bytea THEN substring(state FROM 6 FOR 8) ELSE ''::bytea END) STORED;
ALTER TABLE workspace_builds ALTER COLUMN state SET STORAGE EXTERNAL; -- what is encrypted does not get smaller
CREATE INDEX workspace_builds_state_key ON workspace_builds (state_key) WHERE state <> '';

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
