-- +goose Up

-- How an agent proves who it is, and the machine of a cloud that may do so: its id, and its account where the state says
-- it. proven_build is the last build for which the machine was admitted, with a document of proven_at.
ALTER TABLE workspace_agents
	ADD COLUMN auth text NOT NULL DEFAULT 'token',
	ADD COLUMN instance_id text NOT NULL DEFAULT '',
	ADD COLUMN instance_account text NOT NULL DEFAULT '',
	ADD COLUMN proven_build integer,
	ADD COLUMN proven_at timestamptz;
CREATE INDEX workspace_agents_instance ON workspace_agents (instance_id) WHERE instance_id <> '';

-- Reports whether an agent that a build reports has the machine that has proven to be it, and whose token is valid.
-- +goose StatementBegin
CREATE FUNCTION keeps_machine(a workspace_agents, auth text, instance_id text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
	SELECT a.proven_build IS NOT NULL AND a.token_hash IS NOT NULL AND a.auth = keeps_machine.auth AND a.instance_id = keeps_machine.instance_id
$$;
-- +goose StatementEnd

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
