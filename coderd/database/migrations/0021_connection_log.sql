-- +goose Up

-- Who reached which workspace, and by what. Agents report what comes over the mesh, servers what they proxy. Nothing refers to other
-- tables: a row outlives what it names.
CREATE TABLE connection_logs (
	id uuid PRIMARY KEY, -- chosen by the reporter: a report that is sent twice is stored once
	connect_time timestamptz NOT NULL,
	disconnect_time timestamptz, -- null while the connection is open
	disconnect_reason text NOT NULL DEFAULT '',
	status_code integer, -- the answer to an app's first request, or how a session's program ended; null if unknown
	organization_id uuid NOT NULL,
	workspace_owner_id uuid NOT NULL,
	workspace_id uuid NOT NULL,
	workspace_name text NOT NULL, -- names are those of the time
	agent_id uuid NOT NULL,
	agent_name text NOT NULL,
	type text NOT NULL CHECK (type IN ('ssh', 'vscode', 'jetbrains', 'reconnecting_pty', 'workspace_app', 'port_forwarding')),
	slug_or_port text NOT NULL DEFAULT '',
	user_id uuid, -- null if the visitor of a public app was not signed in
	ip text NOT NULL DEFAULT '', -- where the client reached the server from; for a direct path, where the agent sees it
	user_agent text NOT NULL DEFAULT '',
	path text NOT NULL DEFAULT '' CHECK (path IN ('', 'direct', 'relayed', 'proxied')),
	bytes_in bigint NOT NULL DEFAULT 0, -- into the workspace
	bytes_out bigint NOT NULL DEFAULT 0,
	seen_at timestamptz NOT NULL DEFAULT now() -- for proxied ones: written by their server while they are open
);
-- One for each filter, in the order of the list.
CREATE INDEX connection_logs_time ON connection_logs (connect_time DESC, id DESC);
CREATE INDEX connection_logs_organization ON connection_logs (organization_id, connect_time DESC, id DESC);
CREATE INDEX connection_logs_workspace ON connection_logs (workspace_id, connect_time DESC, id DESC);
CREATE INDEX connection_logs_owner ON connection_logs (workspace_owner_id, connect_time DESC, id DESC);
CREATE INDEX connection_logs_user ON connection_logs (user_id, connect_time DESC, id DESC);
CREATE INDEX connection_logs_type ON connection_logs (type, connect_time DESC, id DESC);
CREATE INDEX connection_logs_open ON connection_logs (agent_id, connect_time DESC, id DESC) WHERE disconnect_time IS NULL;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
