-- +goose Up

-- Withdrawn access to a template ends what is open on it, as for workspaces.
CREATE TRIGGER templates_unshared AFTER UPDATE OF sharing ON templates FOR EACH ROW
	WHEN (NOT NEW.sharing @> OLD.sharing) EXECUTE FUNCTION sharing_revoked();

-- Members who leave an organization leave its groups, and lose what was shared with them there: it does not return with them.
-- +goose StatementBegin
CREATE FUNCTION organization_members_left() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	DELETE FROM group_members m USING groups g WHERE g.id = m.group_id AND g.organization_id = OLD.organization_id AND m.user_id = OLD.user_id;
	UPDATE templates SET sharing = sharing - OLD.user_id::text WHERE organization_id = OLD.organization_id AND sharing ? OLD.user_id::text;
	UPDATE workspaces SET sharing = sharing - OLD.user_id::text
		WHERE organization_id = OLD.organization_id AND sharing <> '{}' AND sharing ? OLD.user_id::text;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER organization_members_left AFTER DELETE ON organization_members FOR EACH ROW EXECUTE FUNCTION organization_members_left();

-- The highest level at which ports and apps of a template's workspaces may be shared. Templates decided about their apps alone until now, so
-- that any other default would close apps that are open.
ALTER TABLE templates ADD COLUMN max_port_share_level text NOT NULL DEFAULT 'public'
	CHECK (max_port_share_level IN ('owner', 'organization', 'authenticated', 'public'));
CREATE TRIGGER templates_ceiling AFTER UPDATE OF max_port_share_level ON templates FOR EACH ROW
	WHEN (NEW.max_port_share_level <> OLD.max_port_share_level) EXECUTE FUNCTION sharing_revoked();

-- Ports that are open to more users than those who may connect to the workspace.
CREATE TABLE workspace_port_shares (
	workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
	agent_name text NOT NULL,
	port integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
	share_level text NOT NULL CHECK (share_level IN ('owner', 'organization', 'authenticated', 'public')),
	protocol text NOT NULL CHECK (protocol IN ('http', 'https')),
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (workspace_id, agent_name, port)
);
CREATE TRIGGER workspace_port_shares_revoked AFTER UPDATE OR DELETE ON workspace_port_shares FOR EACH ROW EXECUTE FUNCTION sharing_revoked();

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
