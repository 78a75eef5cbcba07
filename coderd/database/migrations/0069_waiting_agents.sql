-- +goose Up

-- The hash of the token with which the next start admits an agent whose machine outlives the stop. The agent gets it while it stops, because a
-- build makes new tokens. It admits nothing before a start has stored the agent again.
ALTER TABLE workspace_agents ADD COLUMN return_token_hash bytea;
CREATE INDEX workspace_agents_return_token ON workspace_agents (return_token_hash) WHERE return_token_hash IS NOT NULL;

-- Whoever had access to the machine and has it no longer could have read that token.
-- +goose StatementBegin
CREATE FUNCTION workspaces_forget_return_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspace_agents SET return_token_hash = NULL WHERE workspace_id = NEW.id AND return_token_hash IS NOT NULL;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_forget_return_tokens AFTER UPDATE OF owner_id, sharing ON workspaces FOR EACH ROW
	WHEN (OLD.owner_id <> NEW.owner_id OR OLD.sharing <> NEW.sharing AND OLD.sharing <> '{}')
	EXECUTE FUNCTION workspaces_forget_return_tokens();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
