-- +goose Up

-- Each build changes its job, its build and its workspace a few times. Most of what that cost was in triggers: they compared rows as JSON,
-- wrote rows that stayed the same, and read what the changed row says. What they announce stays, and they announce a little more: the
-- channels of single jobs and workspaces, and the queue, so that servers need no statements for those.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION announce(kind text, id uuid, owner uuid, organization uuid, shared jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	readers text := '';
BEGIN
	IF shared <> '{}' THEN -- few objects are shared
		SELECT string_agg(k, ',') INTO readers FROM (SELECT k FROM jsonb_object_keys(shared) AS k ORDER BY k LIMIT 100) AS keys;
	END IF;
	PERFORM pg_notify('events', concat(kind, ' ', id, ' ', owner, ' ', organization, ' ', readers));
END $$;
-- +goose StatementEnd

-- Times of use are not announced. A comparison of rows, unlike one of JSON, costs little.
-- +goose StatementBegin
CREATE FUNCTION workspaces_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	OLD.last_used_at := NEW.last_used_at;
	OLD.updated_at := NEW.updated_at;
	IF OLD IS DISTINCT FROM NEW THEN
		PERFORM announce('workspace', NEW.id, NEW.owner_id, NEW.organization_id, NEW.sharing);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER workspaces_changed ON workspaces;
CREATE TRIGGER workspaces_changed AFTER UPDATE ON workspaces FOR EACH ROW EXECUTE FUNCTION workspaces_changed();

-- The length of the log is not announced.
-- +goose StatementBegin
CREATE FUNCTION workspace_agents_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	OLD.logs_length := NEW.logs_length;
	OLD.logs_overflowed := NEW.logs_overflowed;
	IF OLD IS DISTINCT FROM NEW THEN
		PERFORM announce('agent', NEW.id, w.owner_id, w.organization_id, w.sharing) FROM workspaces w WHERE w.id = NEW.workspace_id;
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER workspace_agents_changed ON workspace_agents;
CREATE TRIGGER workspace_agents_changed AFTER UPDATE ON workspace_agents FOR EACH ROW
	WHEN (NEW.workspace_id IS NOT NULL) EXECUTE FUNCTION workspace_agents_changed();

-- What a workspace keeps of its latest build is written when it changes, by the trigger that announces the build: one read of the workspace
-- serves both. A change of the workspace announces itself.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_builds_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	workspace record;
	kept boolean := false;
BEGIN
	IF TG_OP = 'INSERT' OR NEW.deadline IS DISTINCT FROM OLD.deadline OR NEW.transition <> OLD.transition OR NEW.reason <> OLD.reason
		OR NEW.template_version_id <> OLD.template_version_id THEN
		UPDATE workspaces w SET latest_build_id = NEW.id, latest_build_number = NEW.build_number, latest_version_id = NEW.template_version_id,
			latest_transition = NEW.transition, latest_reason = NEW.reason, latest_status = j.status, latest_deadline = NEW.deadline,
			latest_ended_at = j.completed_at,
			autostop_tries = CASE WHEN NEW.reason = 'autostop' THEN w.autostop_tries ELSE 0 END,
			autostop_after = CASE WHEN NEW.reason = 'autostop' THEN w.autostop_after END
		FROM provisioner_jobs j WHERE w.id = NEW.workspace_id AND j.id = NEW.job_id AND w.latest_build_number <= NEW.build_number
		RETURNING w.owner_id, w.organization_id, w.sharing INTO workspace;
		kept := FOUND;
	END IF;
	IF TG_OP = 'INSERT' OR NEW.deadline IS DISTINCT FROM OLD.deadline OR NEW.max_deadline IS DISTINCT FROM OLD.max_deadline THEN
		IF NOT kept THEN
			SELECT w.owner_id, w.organization_id, w.sharing INTO workspace FROM workspaces w WHERE w.id = NEW.workspace_id;
			PERFORM announce('workspace', NEW.workspace_id, workspace.owner_id, workspace.organization_id, workspace.sharing);
		END IF;
		PERFORM announce('build', NEW.id, workspace.owner_id, workspace.organization_id, workspace.sharing);
		PERFORM pg_notify('workspace:' || NEW.workspace_id, NEW.workspace_id::text);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER workspace_builds_latest ON workspace_builds;
DROP TRIGGER workspace_builds_changed ON workspace_builds;
CREATE TRIGGER workspace_builds_changed AFTER INSERT OR UPDATE OF deadline, max_deadline, transition, reason, template_version_id ON workspace_builds
	FOR EACH ROW EXECUTE FUNCTION workspace_builds_event();

-- The same for jobs. Servers follow one job on its own channel, and look for a job to dispatch when one is queued or a slot becomes free.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION provisioner_jobs_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	build record;
	version record;
BEGIN
	PERFORM announce('job', NEW.id, NEW.initiator_id, NEW.organization_id, NULL);
	PERFORM pg_notify('job:' || NEW.id, NEW.id::text);
	IF NEW.status NOT IN ('running', 'canceling') THEN
		PERFORM pg_notify('jobs', NEW.id::text);
	END IF;
	IF NEW.kind = 'workspace_build' AND TG_OP = 'UPDATE' THEN -- the build is created just after its job
		UPDATE workspaces w SET latest_status = NEW.status, latest_ended_at = NEW.completed_at
		FROM workspace_builds b WHERE b.job_id = NEW.id AND w.id = b.workspace_id AND w.latest_build_id = b.id
		RETURNING b.id, b.workspace_id, w.owner_id, w.organization_id, w.sharing INTO build;
		IF NOT FOUND THEN
			SELECT b.id, b.workspace_id, w.owner_id, w.organization_id, w.sharing INTO build
			FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id WHERE b.job_id = NEW.id;
		END IF;
		IF FOUND THEN
			PERFORM announce('build', build.id, build.owner_id, build.organization_id, build.sharing);
			PERFORM announce('workspace', build.workspace_id, build.owner_id, build.organization_id, build.sharing);
			PERFORM pg_notify('workspace:' || build.workspace_id, build.workspace_id::text);
		END IF;
	ELSIF NEW.kind = 'template_version_import' THEN
		SELECT coalesce(template_id, id) AS id INTO version FROM template_versions WHERE job_id = NEW.id;
		PERFORM notify_event('template', version.id, NULL);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
DROP TRIGGER provisioner_jobs_latest ON provisioner_jobs;
DROP TRIGGER provisioner_jobs_changed ON provisioner_jobs;
CREATE TRIGGER provisioner_jobs_changed AFTER UPDATE ON provisioner_jobs FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.worker_id IS DISTINCT FROM NEW.worker_id OR OLD.error IS DISTINCT FROM NEW.error
		OR OLD.completed_at IS DISTINCT FROM NEW.completed_at)
	EXECUTE FUNCTION provisioner_jobs_event();
DROP FUNCTION workspace_builds_latest();
DROP FUNCTION provisioner_jobs_latest();

-- A workspace that the policy loop has to look at anyway keeps its row. The loop locks the workspace, and the change that calls this has
-- locked it, too: a look that ended before is seen here.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_policy_look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.deleted_at IS NOT NULL THEN
		DELETE FROM workspace_policy WHERE workspace_id = NEW.id;
	ELSIF NEW.latest_build_id IS DISTINCT FROM OLD.latest_build_id AND NEW.latest_reason NOT IN ('autostart', 'autostop', 'dormancy', 'autodelete')
		OR NEW.latest_status = 'succeeded' AND OLD.latest_status <> 'succeeded' THEN
		UPDATE workspace_policy SET look_at = '-infinity', tries = 0, retry_at = NULL WHERE workspace_id = NEW.id
			AND (look_at > '-infinity' OR tries <> 0 OR retry_at IS NOT NULL);
	ELSE
		UPDATE workspace_policy SET look_at = '-infinity' WHERE workspace_id = NEW.id AND look_at > '-infinity';
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd

DROP INDEX provisioner_jobs_pool; -- provisioner_jobs_fair begins with the same columns, and each job enters and leaves both

-- Jobs leave the queue by a change of their row. Without what they leave behind, the next claim reads the head of the queue at once.
ALTER TABLE provisioner_jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
-- Room on each page for the changes that no index shows: a build's deadline and cost.
ALTER TABLE workspace_builds SET (fillfactor = 85);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
