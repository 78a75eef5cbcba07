-- +goose Up

-- Agents no longer have SSH host keys: a laptop presents one key of its own to OpenSSH for every workspace (decision 14). Nothing reads
-- these keys any more, so they are deleted. An older server cannot run beside this one: a release that does not know this version of the
-- schema refuses to start.
DROP TABLE workspace_host_keys;
ALTER TABLE workspace_agents DROP COLUMN ssh_host_key;

-- +goose Down
-- Nothing: older releases do not start with this schema.
SELECT 1;
