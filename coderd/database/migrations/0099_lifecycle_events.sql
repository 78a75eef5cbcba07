-- +goose Up

-- What happens to workspaces, builds, agents, users and templates, for webhooks and for the stream of events (coderd/webhooks). Triggers write a
-- row in the transaction of the change, so that neither exists without the other.

CREATE SEQUENCE lifecycle_events_sequence;
CREATE TABLE lifecycle_events (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of writing
	-- A server numbers events when they are visible, one transaction at a time: the order of the numbers is the order in which readers see the events.
	sequence bigint UNIQUE,
	message uuid NOT NULL DEFAULT gen_random_uuid(), -- receivers recognize repetitions by it
	type text NOT NULL,
	kind text NOT NULL CHECK (kind IN ('workspace', 'build', 'agent', 'user', 'template', 'webhook')),
	subject uuid NOT NULL, -- deliveries keep the order of the events of a subject: a workspace with its builds and agents, a user, or a template
	owner_id uuid,
	organization_id uuid,
	data jsonb NOT NULL, -- without secrets
	created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX lifecycle_events_new ON lifecycle_events (id) WHERE sequence IS NULL;
CREATE INDEX lifecycle_events_time ON lifecycle_events (created_at);

CREATE TABLE webhooks (
	id uuid PRIMARY KEY,
	name text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 64),
	origin text NOT NULL, -- scheme and host of the URL, for readers: the rest is often a secret
	sealed bytea NOT NULL, -- URL and signing secret
	events text[] NOT NULL CHECK (cardinality(events) BETWEEN 1 AND 64), -- types, or kinds with ".*", or "*"
	format text NOT NULL CHECK (format IN ('standard', 'slack', 'teams')),
	created_at timestamptz NOT NULL DEFAULT now(),
	failing_since timestamptz, -- null: the latest attempt succeeded
	disabled_at timestamptz,
	disabled_reason text NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX webhooks_name ON webhooks (lower(name));

CREATE TABLE webhook_deliveries (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order of delivery
	webhook_id uuid NOT NULL REFERENCES webhooks ON DELETE CASCADE,
	event_id bigint NOT NULL REFERENCES lifecycle_events ON DELETE CASCADE,
	subject uuid NOT NULL,
	replay boolean NOT NULL DEFAULT false,
	status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'delivered', 'failed')),
	attempts integer NOT NULL DEFAULT 0,
	next_at timestamptz NOT NULL DEFAULT now(),
	lease uuid,
	response_status integer NOT NULL DEFAULT 0, -- of the latest attempt; 0: no answer
	excerpt text NOT NULL DEFAULT '', -- of the latest answer
	error text NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now(),
	finished_at timestamptz
);
CREATE INDEX webhook_deliveries_pending ON webhook_deliveries (webhook_id, subject, id) WHERE status = 'pending';
CREATE INDEX webhook_deliveries_log ON webhook_deliveries (webhook_id, id);
CREATE INDEX webhook_deliveries_event ON webhook_deliveries (event_id);

-- +goose StatementBegin
CREATE FUNCTION lifecycle_event(type text, kind text, subject uuid, owner uuid, organization uuid, data jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO lifecycle_events (type, kind, subject, owner_id, organization_id, data)
	VALUES (lifecycle_event.type, lifecycle_event.kind, lifecycle_event.subject, owner, organization, lifecycle_event.data);
	PERFORM pg_notify('lifecycle', '');
END $$;
-- +goose StatementEnd

-- An event of a workspace, or of what belongs to it, has the workspace's facts.
-- +goose StatementBegin
CREATE FUNCTION lifecycle_event_of_workspace(type text, kind text, workspace uuid, more jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lifecycle_event(lifecycle_event_of_workspace.type, lifecycle_event_of_workspace.kind, w.id, w.owner_id, w.organization_id, jsonb_build_object('workspace_id', w.id, 'workspace_name', w.name,
		'owner_id', w.owner_id, 'owner_name', u.username, 'template_id', w.template_id, 'template_name', t.name,
		'organization_id', w.organization_id) || lifecycle_event_of_workspace.more)
	FROM workspaces w JOIN users u ON u.id = w.owner_id JOIN templates t ON t.id = w.template_id WHERE w.id = lifecycle_event_of_workspace.workspace;
END $$;
-- +goose StatementEnd

-- What users, policies and provisioners change has a row in the audit log. Only the names of the changed fields are copied.
-- +goose StatementBegin
CREATE FUNCTION audit_logs_lifecycle() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	verb text := CASE NEW.action WHEN 'create' THEN 'created' WHEN 'write' THEN 'updated' WHEN 'delete' THEN 'deleted' WHEN 'transfer' THEN 'transferred' END;
	who jsonb := jsonb_build_object('actor', NEW.actor, 'actor_id', NEW.user_id);
	changed jsonb := '{}';
BEGIN
	IF NEW.action = 'write' THEN
		changed := jsonb_build_object('changed', ARRAY(SELECT k FROM jsonb_object_keys(NEW.diff) AS k ORDER BY k));
	END IF;
	CASE NEW.resource_type
	WHEN 'workspace' THEN
		IF NEW.action IN ('create', 'transfer') OR NEW.action = 'write' AND NEW.diff <> '{}' THEN -- builds have events of their own
			PERFORM lifecycle_event_of_workspace('workspace.' || verb, 'workspace', NEW.resource_id, who || changed);
		END IF;
	WHEN 'workspace_build' THEN
		IF NEW.additional_fields ? 'result' THEN
			PERFORM lifecycle_event_of_workspace('build.' || (NEW.additional_fields ->> 'result'), 'build', b.workspace_id, jsonb_build_object('build_id', b.id,
				'build_number', b.build_number, 'transition', b.transition, 'reason', b.reason))
			FROM workspace_builds b WHERE b.id = NEW.resource_id;
		END IF;
	WHEN 'user' THEN
		IF NEW.action IN ('create', 'delete') OR NEW.action = 'write' AND NEW.diff <> '{}' THEN
			verb := CASE NEW.diff -> 'status' ->> 'new' WHEN 'suspended' THEN 'suspended' WHEN 'active' THEN CASE WHEN NEW.action = 'write' THEN 'activated' ELSE verb END ELSE verb END;
			PERFORM lifecycle_event('user.' || verb, 'user', NEW.resource_id, NEW.resource_id, NULL,
				jsonb_build_object('user_id', NEW.resource_id, 'username', NEW.resource_target) || who || changed);
		END IF;
	WHEN 'template' THEN
		IF NEW.action IN ('create', 'delete') OR NEW.action = 'write' AND NEW.diff <> '{}' THEN
			PERFORM lifecycle_event('template.' || verb, 'template', NEW.resource_id, NULL, NEW.organization_id,
				jsonb_build_object('template_id', NEW.resource_id, 'template_name', NEW.resource_target, 'organization_id', NEW.organization_id) || who || changed);
		END IF;
	ELSE
	END CASE;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_logs_lifecycle AFTER INSERT ON audit_logs FOR EACH ROW
	WHEN (NEW.resource_id IS NOT NULL AND (NEW.resource_type IN ('workspace', 'user', 'template') AND NEW.status_code < 300 OR NEW.resource_type = 'workspace_build'))
	EXECUTE FUNCTION audit_logs_lifecycle();

-- +goose StatementBegin
CREATE FUNCTION workspace_builds_lifecycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lifecycle_event_of_workspace('build.created', 'build', NEW.workspace_id, jsonb_build_object('build_id', NEW.id,
		'build_number', NEW.build_number, 'transition', NEW.transition, 'reason', NEW.reason,
		'actor', (SELECT username FROM users WHERE id = NEW.initiator_id), 'actor_id', NEW.initiator_id));
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_builds_lifecycle AFTER INSERT ON workspace_builds FOR EACH ROW EXECUTE FUNCTION workspace_builds_lifecycle();

-- +goose StatementBegin
CREATE FUNCTION workspaces_lifecycle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM lifecycle_event_of_workspace('workspace.deleted', 'workspace', NEW.id, '{}');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_lifecycle AFTER UPDATE OF deleted_at ON workspaces FOR EACH ROW
	WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL) EXECUTE FUNCTION workspaces_lifecycle();

-- +goose StatementBegin
CREATE FUNCTION workspace_agents_lifecycle() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	facts jsonb := jsonb_build_object('agent_id', NEW.id, 'agent_name', NEW.name, 'lifecycle_state', NEW.lifecycle_state);
BEGIN
	IF NEW.disconnected_at IS NULL AND NEW.last_connected_at IS NOT NULL AND NEW.last_connected_at IS DISTINCT FROM OLD.last_connected_at THEN
		PERFORM lifecycle_event_of_workspace('agent.connected', 'agent', NEW.workspace_id, facts);
	ELSIF NEW.disconnected_at IS NOT NULL AND OLD.disconnected_at IS NULL THEN
		PERFORM lifecycle_event_of_workspace('agent.disconnected', 'agent', NEW.workspace_id, facts);
	END IF;
	IF NEW.lifecycle_state IS DISTINCT FROM OLD.lifecycle_state AND NEW.lifecycle_state <> 'created' THEN
		PERFORM lifecycle_event_of_workspace('agent.' || NEW.lifecycle_state, 'agent', NEW.workspace_id, facts);
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_agents_lifecycle AFTER UPDATE OF last_connected_at, disconnected_at, lifecycle_state ON workspace_agents FOR EACH ROW
	WHEN (NEW.workspace_id IS NOT NULL) EXECUTE FUNCTION workspace_agents_lifecycle();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
