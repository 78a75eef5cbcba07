-- +goose Up

-- The templates whose workspaces get a user's credentials: the user has started one themselves, and has not revoked that since.
CREATE TABLE template_consents (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	template_id uuid NOT NULL REFERENCES templates ON DELETE CASCADE,
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (user_id, template_id)
);
CREATE INDEX template_consents_template ON template_consents (template_id);

-- Whether the owner asked for this build themselves. NULL: a server from before this migration made the build, and nothing tells.
ALTER TABLE workspace_builds ADD COLUMN by_owner boolean;
-- The owner's credentials were left out of the build, or were revoked while the workspace ran.
ALTER TABLE workspace_builds ADD COLUMN credentials_withheld boolean NOT NULL DEFAULT false;

-- Owners who have started their workspaces themselves keep what they had.
INSERT INTO template_consents (user_id, template_id, created_at)
SELECT w.owner_id, w.template_id, min(b.created_at)
FROM workspace_builds b
JOIN workspaces w ON w.id = b.workspace_id AND w.owner_id = b.initiator_id
JOIN users u ON u.id = w.owner_id AND u.deleted_at IS NULL
JOIN templates t ON t.id = w.template_id AND t.deleted_at IS NULL
WHERE b.transition = 'start' AND b.reason NOT IN ('autostart', 'autostop', 'dormancy', 'autodelete')
GROUP BY w.owner_id, w.template_id;

-- The same for builds that a server from before this migration makes during an upgrade. A newer server always sets by_owner.
-- +goose StatementBegin
CREATE FUNCTION workspace_builds_consent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO template_consents (user_id, template_id)
	SELECT w.owner_id, w.template_id FROM workspaces w
	WHERE w.id = NEW.workspace_id AND w.owner_id = NEW.initiator_id AND w.owner_id <> prebuilds_owner()
	ON CONFLICT DO NOTHING;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_builds_consent AFTER INSERT ON workspace_builds FOR EACH ROW
	WHEN (NEW.by_owner IS NULL AND NEW.transition = 'start' AND NEW.reason NOT IN ('autostart', 'autostop', 'dormancy', 'autodelete'))
	EXECUTE FUNCTION workspace_builds_consent();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
