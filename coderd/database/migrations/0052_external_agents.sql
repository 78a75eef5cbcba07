-- +goose Up

-- Whether a user starts the agent by hand, on a machine that the template does not make (coder_external_agent). Earlier servers do not set it:
-- they have no such agents.
ALTER TABLE workspace_agents ADD COLUMN external boolean NOT NULL DEFAULT false;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
