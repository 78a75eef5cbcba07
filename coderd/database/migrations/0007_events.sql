-- +goose Up

-- Changes of objects that pages show are announced on one channel, "events", as "<kind> <id> <owner>"; the owner is empty for objects of
-- the deployment. Triggers announce a change in its own transaction, whichever statement made it, and PostgreSQL delivers equal
-- announcements of a transaction once. Times of use and lengths of logs are not announced.

-- +goose StatementBegin
CREATE FUNCTION notify_event(kind text, id uuid, owner uuid) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF id IS NOT NULL THEN
		PERFORM pg_notify('events', kind || ' ' || id || ' ' || coalesce(owner::text, ''));
	END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION workspaces_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('workspace', NEW.id, NEW.owner_id);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_created AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION workspaces_event();
CREATE TRIGGER workspaces_changed AFTER UPDATE ON workspaces FOR EACH ROW
	WHEN (to_jsonb(OLD) - ARRAY['last_used_at', 'updated_at'] IS DISTINCT FROM to_jsonb(NEW) - ARRAY['last_used_at', 'updated_at'])
	EXECUTE FUNCTION workspaces_event();

-- +goose StatementBegin
CREATE FUNCTION workspace_builds_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	owner uuid;
BEGIN
	SELECT owner_id INTO owner FROM workspaces WHERE id = NEW.workspace_id;
	PERFORM notify_event('build', NEW.id, owner);
	PERFORM notify_event('workspace', NEW.workspace_id, owner);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_builds_changed AFTER INSERT OR UPDATE OF deadline, max_deadline ON workspace_builds
	FOR EACH ROW EXECUTE FUNCTION workspace_builds_event();

-- A job's change is also announced for the object that it works on.
-- +goose StatementBegin
CREATE FUNCTION provisioner_jobs_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	build record;
	version record;
BEGIN
	PERFORM notify_event('job', NEW.id, NEW.initiator_id);
	IF NEW.kind = 'workspace_build' THEN
		SELECT b.id, b.workspace_id, w.owner_id INTO build
		FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id WHERE b.job_id = NEW.id;
		PERFORM notify_event('build', build.id, build.owner_id);
		PERFORM notify_event('workspace', build.workspace_id, build.owner_id);
	ELSIF NEW.kind = 'template_version_import' THEN
		SELECT coalesce(template_id, id) AS id INTO version FROM template_versions WHERE job_id = NEW.id;
		PERFORM notify_event('template', version.id, NULL);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER provisioner_jobs_created AFTER INSERT ON provisioner_jobs FOR EACH ROW EXECUTE FUNCTION provisioner_jobs_event();
CREATE TRIGGER provisioner_jobs_changed AFTER UPDATE ON provisioner_jobs FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.worker_id IS DISTINCT FROM NEW.worker_id OR OLD.error IS DISTINCT FROM NEW.error)
	EXECUTE FUNCTION provisioner_jobs_event();

-- +goose StatementBegin
CREATE FUNCTION templates_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('template', NEW.id, NULL);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER templates_changed AFTER INSERT OR UPDATE ON templates FOR EACH ROW EXECUTE FUNCTION templates_event();

-- +goose StatementBegin
CREATE FUNCTION template_versions_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('template', coalesce(NEW.template_id, NEW.id), NULL);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER template_versions_changed AFTER INSERT OR UPDATE ON template_versions FOR EACH ROW EXECUTE FUNCTION template_versions_event();

-- A daemon with scope=user belongs to its user, others to the deployment.
-- +goose StatementBegin
CREATE FUNCTION provisioner_daemons_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	daemon provisioner_daemons := coalesce(NEW, OLD);
BEGIN
	PERFORM notify_event('provisioner', daemon.id, nullif(daemon.tags ->> 'owner', '')::uuid);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER provisioner_daemons_changed AFTER INSERT OR UPDATE OR DELETE ON provisioner_daemons
	FOR EACH ROW EXECUTE FUNCTION provisioner_daemons_event();

-- Agents of imports and dry runs have no workspace, and no page shows them.
-- +goose StatementBegin
CREATE FUNCTION workspace_agents_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('agent', NEW.id, w.owner_id) FROM workspaces w WHERE w.id = NEW.workspace_id;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_agents_created AFTER INSERT ON workspace_agents FOR EACH ROW
	WHEN (NEW.workspace_id IS NOT NULL) EXECUTE FUNCTION workspace_agents_event();
CREATE TRIGGER workspace_agents_changed AFTER UPDATE ON workspace_agents FOR EACH ROW
	WHEN (NEW.workspace_id IS NOT NULL AND
		to_jsonb(OLD) - ARRAY['logs_length', 'logs_overflowed'] IS DISTINCT FROM to_jsonb(NEW) - ARRAY['logs_length', 'logs_overflowed'])
	EXECUTE FUNCTION workspace_agents_event();

-- Changes of what belongs to an agent are announced for the agent.
-- +goose StatementBegin
CREATE FUNCTION workspace_agent_parts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('agent', a.id, w.owner_id)
	FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id WHERE a.id = NEW.agent_id;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_apps_changed AFTER UPDATE ON workspace_apps FOR EACH ROW
	WHEN (OLD.health IS DISTINCT FROM NEW.health) EXECUTE FUNCTION workspace_agent_parts_event();
CREATE TRIGGER workspace_agent_scripts_changed AFTER UPDATE ON workspace_agent_scripts FOR EACH ROW
	WHEN (OLD.started_at IS DISTINCT FROM NEW.started_at OR OLD.ended_at IS DISTINCT FROM NEW.ended_at)
	EXECUTE FUNCTION workspace_agent_parts_event();

-- +goose StatementBegin
CREATE FUNCTION users_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM notify_event('user', NEW.id, NEW.id);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER users_created AFTER INSERT ON users FOR EACH ROW EXECUTE FUNCTION users_event();
CREATE TRIGGER users_changed AFTER UPDATE ON users FOR EACH ROW
	WHEN (to_jsonb(OLD) - ARRAY['last_seen_at', 'updated_at'] IS DISTINCT FROM to_jsonb(NEW) - ARRAY['last_seen_at', 'updated_at'])
	EXECUTE FUNCTION users_event();

-- Users who have lost a right are announced on "users_revoked" to every server, which cuts what the user has open. This includes changes
-- by other programs, such as an operator's on the database's host.
-- +goose StatementBegin
CREATE FUNCTION users_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('users_revoked', NEW.id::text);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER users_revoked AFTER UPDATE ON users FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.roles IS DISTINCT FROM NEW.roles OR OLD.deleted_at IS DISTINCT FROM NEW.deleted_at)
	EXECUTE FUNCTION users_revoked();

-- +goose StatementBegin
CREATE FUNCTION api_keys_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('users_revoked', OLD.user_id::text);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER api_keys_revoked AFTER DELETE ON api_keys FOR EACH ROW
	WHEN (OLD.kind <> 'workspace' AND OLD.expires_at > now()) EXECUTE FUNCTION api_keys_revoked();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
