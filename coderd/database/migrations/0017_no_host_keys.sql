-- +goose Up

-- Agents have no SSH host keys any more: a laptop has one key of its own, which it shows to OpenSSH for every workspace (decision 14).
-- Nothing reads or writes these since, so private keys are not kept for nothing. An older server cannot run beside this one: only one
-- server uses a database, and a release that does not know this version of the schema refuses to start.
DROP TABLE workspace_host_keys;
ALTER TABLE workspace_agents DROP COLUMN ssh_host_key;

-- +goose Down
-- Nothing: an older release does not start on this schema.
SELECT 1;
