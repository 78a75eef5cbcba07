-- +goose Up
-- The output of a start script that could not start its agent; '' if there is no known problem.
ALTER TABLE workspace_agents ADD COLUMN startup_problem text NOT NULL DEFAULT '';
ALTER TABLE workspace_agents ADD COLUMN startup_problem_at timestamptz;

-- A long log keeps its beginning and its end. One line between them reports what was left out.
ALTER TABLE workspace_agent_log_sources ADD COLUMN head_bytes bigint NOT NULL DEFAULT 0; -- bytes kept of the beginning
ALTER TABLE workspace_agent_log_sources ADD COLUMN tail_bytes bigint NOT NULL DEFAULT 0; -- bytes kept of the end
ALTER TABLE workspace_agent_log_sources ADD COLUMN left_out bigint NOT NULL DEFAULT 0;   -- lines left out between them
ALTER TABLE workspace_agent_log_sources ADD COLUMN gap_id bigint; -- the line that reports them; NULL: none were left out
ALTER TABLE workspace_agent_logs ADD COLUMN tail boolean NOT NULL DEFAULT false; -- later lines may replace it
CREATE INDEX workspace_agent_logs_tail ON workspace_agent_logs (log_source_id, id) WHERE tail;
UPDATE workspace_agent_log_sources s
SET head_bytes = (SELECT coalesce(sum(octet_length(l.output)), 0) FROM workspace_agent_logs l WHERE l.log_source_id = s.id AND l.agent_id = s.agent_id);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
