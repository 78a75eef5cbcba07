-- +goose Up

-- What the servers of the deployment must know of each other to form one mesh. The url is empty until the server is ready for the others.
ALTER TABLE servers
	ADD COLUMN url text NOT NULL DEFAULT '', -- at which the other servers reach it
	ADD COLUMN region text NOT NULL DEFAULT '',
	ADD COLUMN version text NOT NULL DEFAULT '',
	ADD COLUMN link_version integer NOT NULL DEFAULT 0, -- of the protocol between servers
	ADD COLUMN min_link_version integer NOT NULL DEFAULT 0, -- the oldest that it understands
	ADD COLUMN state_keys text[] NOT NULL DEFAULT '{}'; -- ids of its keys: the first encrypts, all decrypt

-- The server that an agent is, or was last, connected to; null for agents that have not connected since this column exists. Not a foreign key,
-- as for provisioner_daemons.
ALTER TABLE workspace_agents ADD COLUMN server_id uuid;
CREATE INDEX workspace_agents_connected ON workspace_agents (server_id) WHERE last_connected_at IS NOT NULL AND disconnected_at IS NULL;

-- +goose StatementBegin
CREATE FUNCTION servers_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('servers', '');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER servers_changed AFTER DELETE ON servers FOR EACH ROW EXECUTE FUNCTION servers_changed();
CREATE TRIGGER servers_announced AFTER INSERT OR UPDATE OF url ON servers FOR EACH ROW WHEN (NEW.url <> '') EXECUTE FUNCTION servers_changed();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
