-- +goose Up

-- Region proxies may serve apps. What the proxy announced when it last connected; an older server announces nothing.
ALTER TABLE workspace_proxies ADD COLUMN apps boolean NOT NULL DEFAULT false;
ALTER TABLE workspace_proxies ADD COLUMN wildcard_host text NOT NULL DEFAULT '';

-- Which agents the nodes of region proxies may be introduced to, because a visitor may open an app there. Rows expire within a minute unless the
-- visit goes on.
CREATE TABLE region_visas (
	proxy_id uuid NOT NULL REFERENCES workspace_proxies (id) ON DELETE CASCADE,
	node_id uuid NOT NULL,
	agent_id uuid NOT NULL, -- no foreign key: a row is short-lived, and the agent's own checks decide
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (proxy_id, node_id, agent_id)
);
CREATE INDEX region_visas_expiry ON region_visas (expires_at);

-- Codes of app sign-ins that were redeemed: each works once, at whichever server. Rows are removed after the codes have expired.
CREATE TABLE app_codes (
	hash bytea PRIMARY KEY,
	expires_at timestamptz NOT NULL
);
CREATE INDEX app_codes_expiry ON app_codes (expires_at);

-- The region proxy that a connection went through; '' for a server.
ALTER TABLE connection_logs ADD COLUMN region text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
