-- +goose Up

-- Facts about a workspace's latest build for lists and the scheduler, kept in the workspace's own row. Triggers write them in the
-- transaction of the change, whichever statement made it.
ALTER TABLE workspaces
	ADD COLUMN latest_build_id uuid, -- null: the workspace has no build yet
	ADD COLUMN latest_build_number integer NOT NULL DEFAULT 0,
	ADD COLUMN latest_version_id uuid,
	ADD COLUMN latest_transition text NOT NULL DEFAULT '',
	ADD COLUMN latest_reason text NOT NULL DEFAULT '',
	ADD COLUMN latest_status text NOT NULL DEFAULT '', -- the status of the build's job
	ADD COLUMN latest_deadline timestamptz,
	ADD COLUMN latest_ended_at timestamptz, -- when the job ended
	-- The failed automatic stops since the last other build, and when to try again.
	ADD COLUMN autostop_tries integer NOT NULL DEFAULT 0,
	ADD COLUMN autostop_after timestamptz;

-- +goose StatementBegin
CREATE FUNCTION workspace_builds_latest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspaces w SET latest_build_id = NEW.id, latest_build_number = NEW.build_number, latest_version_id = NEW.template_version_id,
		latest_transition = NEW.transition, latest_reason = NEW.reason, latest_status = j.status, latest_deadline = NEW.deadline,
		latest_ended_at = j.completed_at,
		autostop_tries = CASE WHEN NEW.reason = 'autostop' THEN w.autostop_tries ELSE 0 END,
		autostop_after = CASE WHEN NEW.reason = 'autostop' THEN w.autostop_after END
	FROM provisioner_jobs j WHERE w.id = NEW.workspace_id AND j.id = NEW.job_id AND w.latest_build_number <= NEW.build_number;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_builds_latest AFTER INSERT OR UPDATE OF deadline, transition, reason, template_version_id ON workspace_builds
	FOR EACH ROW EXECUTE FUNCTION workspace_builds_latest();

-- +goose StatementBegin
CREATE FUNCTION provisioner_jobs_latest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspaces w SET latest_status = NEW.status, latest_ended_at = NEW.completed_at
	FROM workspace_builds b WHERE b.job_id = NEW.id AND w.id = b.workspace_id AND w.latest_build_id = b.id;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER provisioner_jobs_latest AFTER UPDATE OF status, completed_at ON provisioner_jobs FOR EACH ROW
	WHEN (NEW.kind = 'workspace_build' AND (OLD.status IS DISTINCT FROM NEW.status OR OLD.completed_at IS DISTINCT FROM NEW.completed_at))
	EXECUTE FUNCTION provisioner_jobs_latest();

UPDATE workspaces w SET latest_build_id = b.id, latest_build_number = b.build_number, latest_version_id = b.template_version_id,
	latest_transition = b.transition, latest_reason = b.reason, latest_status = j.status, latest_deadline = b.deadline, latest_ended_at = j.completed_at
FROM (SELECT DISTINCT ON (workspace_id) id, workspace_id, build_number, template_version_id, transition, reason, deadline, job_id
	FROM workspace_builds ORDER BY workspace_id, build_number DESC) b
JOIN provisioner_jobs j ON j.id = b.job_id
WHERE w.id = b.workspace_id;

CREATE INDEX workspaces_deadline ON workspaces (latest_deadline) WHERE deleted_at IS NULL AND latest_transition = 'start' AND latest_status = 'succeeded';
CREATE INDEX workspaces_stop_failed ON workspaces (autostop_after)
	WHERE deleted_at IS NULL AND latest_transition = 'stop' AND latest_status = 'failed' AND latest_reason = 'autostop';
CREATE INDEX workspaces_autostart ON workspaces (id)
	WHERE deleted_at IS NULL AND autostart_schedule IS NOT NULL AND latest_transition = 'stop' AND latest_status = 'succeeded';

-- A user with many jobs must not delay others: the next slot goes to the user with the fewest running jobs.
CREATE INDEX provisioner_jobs_fair ON provisioner_jobs (organization_id, tags, priority, initiator_id, created_at, id) WHERE status = 'pending';
CREATE INDEX provisioner_jobs_served ON provisioner_jobs (initiator_id, started_at);
CREATE INDEX provisioner_jobs_running ON provisioner_jobs (initiator_id) WHERE status IN ('running', 'canceling');

-- When retention removed old data.
ALTER TABLE workspace_builds ADD COLUMN state_removed_at timestamptz;
ALTER TABLE provisioner_jobs ADD COLUMN logs_removed_at timestamptz;
CREATE INDEX provisioner_jobs_old_logs ON provisioner_jobs (completed_at) WHERE completed_at IS NOT NULL AND logs_removed_at IS NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
