-- +goose Up

-- Announcements say who may see an object. The rows that change say so themselves, or one read of the workspace does: each announcement read
-- it again, which was most of what a build cost the database. Payloads stay as they are.

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspaces_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM announce('workspace', NEW.id, NEW.owner_id, NEW.organization_id, NEW.sharing);
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_builds_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	workspace record;
BEGIN
	SELECT w.owner_id, w.organization_id, w.sharing INTO workspace FROM workspaces w WHERE w.id = NEW.workspace_id;
	PERFORM announce('build', NEW.id, workspace.owner_id, workspace.organization_id, workspace.sharing);
	PERFORM announce('workspace', NEW.workspace_id, workspace.owner_id, workspace.organization_id, workspace.sharing);
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION provisioner_jobs_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	build record;
	version record;
BEGIN
	PERFORM announce('job', NEW.id, NEW.initiator_id, NEW.organization_id, NULL);
	IF NEW.kind = 'workspace_build' THEN
		SELECT b.id, b.workspace_id, w.owner_id, w.organization_id, w.sharing INTO build
		FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id WHERE b.job_id = NEW.id;
		IF FOUND THEN -- not when the job is created, just before its build
			PERFORM announce('build', build.id, build.owner_id, build.organization_id, build.sharing);
			PERFORM announce('workspace', build.workspace_id, build.owner_id, build.organization_id, build.sharing);
		END IF;
	ELSIF NEW.kind = 'template_version_import' THEN
		SELECT coalesce(template_id, id) AS id INTO version FROM template_versions WHERE job_id = NEW.id;
		PERFORM notify_event('template', version.id, NULL);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_agents_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM announce('agent', NEW.id, w.owner_id, w.organization_id, w.sharing) FROM workspaces w WHERE w.id = NEW.workspace_id;
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION workspace_agent_parts_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM announce('agent', a.id, w.owner_id, w.organization_id, w.sharing)
	FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id WHERE a.id = NEW.agent_id;
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
