-- +goose Up

-- The hash of the token that an agent derives from its own once that is refused. An agent that was offline while its workspace stopped got no
-- return token, so the stop makes one of this. It admits nothing while it is here.
ALTER TABLE workspace_agents ADD COLUMN offline_token_hash bytea;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspaces_forget_return_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspace_agents SET return_token_hash = NULL, offline_token_hash = NULL
	WHERE workspace_id = NEW.id AND (return_token_hash IS NOT NULL OR offline_token_hash IS NOT NULL);
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- Neither the length of the log is announced, nor what of a token is kept or forgotten: no user sees that.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_agents_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	OLD.logs_length := NEW.logs_length;
	OLD.logs_overflowed := NEW.logs_overflowed;
	OLD.return_token_hash := NEW.return_token_hash;
	OLD.offline_token_hash := NEW.offline_token_hash;
	IF OLD IS DISTINCT FROM NEW THEN
		PERFORM announce('agent', NEW.id, w.owner_id, w.organization_id, w.sharing) FROM workspaces w WHERE w.id = NEW.workspace_id;
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
