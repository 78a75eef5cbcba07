-- +goose Up

-- The servers that use this database. Each writes its row every few seconds. A server with an old row is gone, and the provisioners that
-- were connected to it are offline.
CREATE TABLE servers (
	id uuid PRIMARY KEY, -- new with each process
	started_at timestamptz NOT NULL DEFAULT now(),
	beat_at timestamptz NOT NULL DEFAULT now()
);

-- The server that a daemon is, or was last, connected to. It is not a foreign key, because a server that was silent for so long that its
-- row was removed writes it again.
ALTER TABLE provisioner_daemons ADD COLUMN server_id uuid;
CREATE INDEX provisioner_daemons_online ON provisioner_daemons (server_id) WHERE online;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
