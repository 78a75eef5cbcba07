-- +goose Up

-- What else runs an agent's workspace, as the agent says: envbox, envbuilder, exectrace.
ALTER TABLE workspace_agents ADD COLUMN subsystems text[] NOT NULL DEFAULT '{}';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
