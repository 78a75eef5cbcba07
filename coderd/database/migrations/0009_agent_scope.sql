-- +goose Up

-- Whether an agent may have what is its workspace's owner's: the key for git and the logins elsewhere. coder_agent.api_key_scope
-- takes it away with "no_user_data". Agents of servers before this one have it.
ALTER TABLE workspace_agents ADD COLUMN user_data boolean NOT NULL DEFAULT true;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
