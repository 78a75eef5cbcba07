-- +goose Up
-- What an agent's start script said when the agent could not start. '' when nothing is wrong, or it is not known.
ALTER TABLE workspace_agents ADD COLUMN startup_problem text NOT NULL DEFAULT '';
ALTER TABLE workspace_agents ADD COLUMN startup_problem_at timestamptz;

-- A long log keeps its beginning and its end. What was left out between them is told by one line in its place.
ALTER TABLE workspace_agent_log_sources ADD COLUMN head_bytes bigint NOT NULL DEFAULT 0; -- kept of the beginning
ALTER TABLE workspace_agent_log_sources ADD COLUMN tail_bytes bigint NOT NULL DEFAULT 0; -- kept of the end
ALTER TABLE workspace_agent_log_sources ADD COLUMN left_out bigint NOT NULL DEFAULT 0;   -- lines between them
ALTER TABLE workspace_agent_log_sources ADD COLUMN gap_id bigint; -- of the line that tells about them; NULL: none is left out
ALTER TABLE workspace_agent_logs ADD COLUMN tail boolean NOT NULL DEFAULT false; -- may give way to later ones
CREATE INDEX workspace_agent_logs_tail ON workspace_agent_logs (log_source_id, id) WHERE tail;
UPDATE workspace_agent_log_sources s
SET head_bytes = (SELECT coalesce(sum(octet_length(l.output)), 0) FROM workspace_agent_logs l WHERE l.log_source_id = s.id AND l.agent_id = s.agent_id);

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
