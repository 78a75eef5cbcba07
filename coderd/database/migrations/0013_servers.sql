-- +goose Up

-- The servers that use this database. Each writes its row every few seconds: a server whose row is old is gone, and the provisioners
-- that were connected to it are offline.
CREATE TABLE servers (
	id uuid PRIMARY KEY, -- new with each process
	started_at timestamptz NOT NULL DEFAULT now(),
	beat_at timestamptz NOT NULL DEFAULT now()
);

-- The server that a daemon is connected to, or was last. No foreign key: a server that was silent for so long that its row was
-- removed writes it again.
ALTER TABLE provisioner_daemons ADD COLUMN server_id uuid;
CREATE INDEX provisioner_daemons_online ON provisioner_daemons (server_id) WHERE online;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
