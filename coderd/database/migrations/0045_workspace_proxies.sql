-- +goose Up

-- Region proxies: relays near the workspaces and users of a region, which dial out to the servers.
CREATE TABLE workspace_proxies (
	id uuid PRIMARY KEY,
	-- The region in relay maps. Region 1 is the servers'. A number is never used again: nodes remember what they measured.
	region integer NOT NULL GENERATED ALWAYS AS IDENTITY (START WITH 10 MAXVALUE 65535) UNIQUE,
	name text NOT NULL,
	display_name text NOT NULL DEFAULT '',
	icon text NOT NULL DEFAULT '',
	token_hash bytea NOT NULL UNIQUE, -- only the hash: the proxy has the token
	-- What the proxy announced when it last connected.
	url text NOT NULL DEFAULT '',
	stun_port integer NOT NULL DEFAULT 0,
	version text NOT NULL DEFAULT '',
	-- The server that the proxy is connected to, and its connection there; null while it is not connected. No foreign key, as for workspace_agents.
	server_id uuid,
	connection_id uuid,
	seen_at timestamptz, -- when the last connection began or ended; null before the first
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX workspace_proxies_name ON workspace_proxies (lower(name));

-- +goose StatementBegin
CREATE FUNCTION workspace_proxies_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('workspace_proxies', '');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_proxies_changed AFTER INSERT OR UPDATE OR DELETE ON workspace_proxies FOR EACH ROW EXECUTE FUNCTION workspace_proxies_changed();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
