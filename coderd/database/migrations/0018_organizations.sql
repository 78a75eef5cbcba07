-- +goose Up

-- Organizations own templates, provisioners, groups and roles. Users belong to any number of them.
ALTER TABLE organizations
	ADD COLUMN description text NOT NULL DEFAULT '',
	ADD COLUMN icon text NOT NULL DEFAULT '',
	ADD COLUMN updated_at timestamptz NOT NULL DEFAULT now(),
	ADD COLUMN deleted_at timestamptz; -- the row stays: jobs and deleted templates refer to it
ALTER TABLE organizations DROP CONSTRAINT organizations_name_key;
CREATE UNIQUE INDEX organizations_name ON organizations (lower(name)) WHERE deleted_at IS NULL;

CREATE TABLE organization_members (
	organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	roles text[] NOT NULL DEFAULT '{}', -- built-in and custom ones, without organization-member
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (organization_id, user_id)
);
CREATE INDEX organization_members_user ON organization_members (user_id);
INSERT INTO organization_members (organization_id, user_id) SELECT o.id, u.id FROM organizations o, users u WHERE o.is_default AND u.deleted_at IS NULL;

-- Custom roles. Powers is a list of {"action", "resource"}, as in the permission table.
CREATE TABLE organization_roles (
	organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
	name text NOT NULL CHECK (name ~ '^[a-z0-9]+(-[a-z0-9]+)*$' AND length(name) <= 64),
	display_name text NOT NULL DEFAULT '',
	powers jsonb NOT NULL DEFAULT '[]',
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (organization_id, name)
);

ALTER TABLE users DROP CONSTRAINT users_roles_check;
ALTER TABLE users ADD CONSTRAINT users_roles_check CHECK (roles <@ ARRAY['owner', 'user-admin', 'template-admin', 'auditor']);

-- Groups of users in an organization. The group with the organization's id is Everyone: all members belong to it, without rows.
CREATE TABLE groups (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
	name text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
	display_name text NOT NULL DEFAULT '',
	avatar_url text NOT NULL DEFAULT '',
	quota_allowance integer NOT NULL DEFAULT 0 CHECK (quota_allowance >= 0),
	source text NOT NULL DEFAULT 'user' CHECK (source IN ('user', 'oidc')), -- who created it: a person, or the sync with the identity provider
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX groups_name ON groups (organization_id, lower(name));

CREATE TABLE group_members (
	group_id uuid NOT NULL REFERENCES groups ON DELETE CASCADE,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (group_id, user_id)
);
CREATE INDEX group_members_user ON group_members (user_id);

INSERT INTO groups (id, organization_id, name, display_name) SELECT id, id, 'Everyone', 'Everyone' FROM organizations;
-- +goose StatementBegin
CREATE FUNCTION organizations_everyone() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO groups (id, organization_id, name, display_name) VALUES (NEW.id, NEW.id, 'Everyone', 'Everyone');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER organizations_everyone AFTER INSERT ON organizations FOR EACH ROW EXECUTE FUNCTION organizations_everyone();

-- With whom an object is shared: {"<id of a user or group>": "use" or "admin"}. New templates are open to Everyone.
ALTER TABLE templates ADD COLUMN sharing jsonb NOT NULL DEFAULT '{}';
UPDATE templates SET sharing = jsonb_build_object(organization_id, 'use');
ALTER TABLE workspaces ADD COLUMN sharing jsonb NOT NULL DEFAULT '{}';
CREATE INDEX workspaces_sharing ON workspaces USING gin (sharing) WHERE sharing <> '{}';

-- A deleted group vanishes from what is shared with it.
-- +goose StatementBegin
CREATE FUNCTION groups_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE templates SET sharing = sharing - OLD.id::text WHERE sharing ? OLD.id::text;
	UPDATE workspaces SET sharing = sharing - OLD.id::text WHERE sharing <> '{}' AND sharing ? OLD.id::text;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER groups_deleted AFTER DELETE ON groups FOR EACH ROW EXECUTE FUNCTION groups_deleted();

-- Servers cut what a user has open when they lose a right. An empty payload means: check all users.
-- +goose StatementBegin
CREATE FUNCTION membership_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('users_revoked', OLD.user_id::text);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER organization_members_revoked AFTER DELETE ON organization_members FOR EACH ROW EXECUTE FUNCTION membership_revoked();
CREATE TRIGGER organization_members_changed AFTER UPDATE ON organization_members FOR EACH ROW
	WHEN (OLD.roles IS DISTINCT FROM NEW.roles) EXECUTE FUNCTION membership_revoked();
CREATE TRIGGER group_members_revoked AFTER DELETE ON group_members FOR EACH ROW EXECUTE FUNCTION membership_revoked();

-- +goose StatementBegin
CREATE FUNCTION sharing_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('users_revoked', '');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_unshared AFTER UPDATE OF sharing ON workspaces FOR EACH ROW
	WHEN (NOT NEW.sharing @> OLD.sharing) EXECUTE FUNCTION sharing_revoked();
CREATE TRIGGER organization_roles_revoked AFTER UPDATE OR DELETE ON organization_roles FOR EACH ROW EXECUTE FUNCTION sharing_revoked();

-- Announcements of changes also say who may see the object: "<kind> <id> <owner> <organization> <ids>", where the last lists, with
-- commas, the users and groups with whom it is shared. More than 100 of them do not fit; the others see the change when they reload.
-- +goose StatementBegin
CREATE FUNCTION announce(kind text, id uuid, owner uuid, organization uuid, shared jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('events', kind || ' ' || id || ' ' || coalesce(owner::text, '') || ' ' || coalesce(organization::text, '') || ' ' ||
		coalesce((SELECT string_agg(k, ',') FROM (SELECT k FROM jsonb_object_keys(shared) AS k ORDER BY k LIMIT 100) AS keys), ''));
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION notify_event(kind text, id uuid, owner uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	organization uuid;
	shared jsonb;
BEGIN
	IF notify_event.id IS NULL THEN
		RETURN;
	END IF;
	CASE kind
	WHEN 'workspace' THEN
		SELECT w.organization_id, w.sharing INTO organization, shared FROM workspaces w WHERE w.id = notify_event.id;
	WHEN 'build' THEN
		SELECT w.organization_id, w.sharing INTO organization, shared
		FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id WHERE b.id = notify_event.id;
	WHEN 'agent' THEN
		SELECT w.organization_id, w.sharing INTO organization, shared
		FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id WHERE a.id = notify_event.id;
	WHEN 'job' THEN
		SELECT j.organization_id INTO organization FROM provisioner_jobs j WHERE j.id = notify_event.id;
	WHEN 'template' THEN
		SELECT t.organization_id, t.sharing INTO organization, shared FROM templates t WHERE t.id = notify_event.id;
		IF NOT FOUND THEN -- a version without a template
			SELECT v.organization_id INTO organization FROM template_versions v WHERE v.id = notify_event.id;
		END IF;
	ELSE
	END CASE;
	PERFORM announce(kind, notify_event.id, owner, organization, shared);
END $$;
-- +goose StatementEnd

-- A daemon with scope=user is its user's. Deleted ones are announced too, so its organization is not looked up.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION provisioner_daemons_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	daemon provisioner_daemons := coalesce(NEW, OLD);
BEGIN
	PERFORM announce('provisioner', daemon.id, nullif(daemon.tags ->> 'owner', '')::uuid, daemon.organization_id, NULL);
	RETURN NULL;
END $$;
-- +goose StatementEnd

-- Users with everything that decides what they may do.
CREATE VIEW actors AS
SELECT u.id, u.username, u.status, u.roles,
	(SELECT coalesce(jsonb_agg(jsonb_build_object('organization', m.organization_id, 'roles', m.roles, 'powers', coalesce(
			(SELECT jsonb_agg(p.power) FROM organization_roles r, jsonb_array_elements(r.powers) AS p (power)
				WHERE r.organization_id = m.organization_id AND r.name = ANY (m.roles)), '[]')) ORDER BY m.organization_id), '[]')
		FROM organization_members m WHERE m.user_id = u.id)::jsonb AS memberships,
	ARRAY(SELECT g.group_id FROM group_members g WHERE g.user_id = u.id ORDER BY g.group_id)::uuid[] AS groups
FROM users u WHERE u.deleted_at IS NULL;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
