-- +goose Up

-- What the agent watches, and what its owner was notified of: [{"volume", "threshold", "over", "percent", "changed_at", "notified_at"}]. The
-- thresholds come with the build. The agent reports when it passes one or falls below it; nothing is written per measurement.
-- Earlier servers do not set it: their agents have none.
ALTER TABLE workspace_agents ADD COLUMN monitors jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(monitors) = 'array');

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
