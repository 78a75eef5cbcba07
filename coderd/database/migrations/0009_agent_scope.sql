-- +goose Up

-- Whether an agent may read its owner's Git key and logins at other services. coder_agent.api_key_scope = "no_user_data" forbids it.
-- Agents of earlier servers may.
ALTER TABLE workspace_agents ADD COLUMN user_data boolean NOT NULL DEFAULT true;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
