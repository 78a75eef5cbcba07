-- +goose Up

-- The order of lists of workspaces, so that a page reads its own rows and not all workspaces: running ones first, then by the owner's name,
-- which triggers keep in the workspace's own row, in lower case, and by the workspace's name.
ALTER TABLE workspaces ADD COLUMN owner_key text NOT NULL DEFAULT '';

-- The share lock makes a workspace that is created while its owner is renamed wait for the new name.
-- +goose StatementBegin
CREATE FUNCTION workspaces_owner_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	SELECT lower(username) INTO NEW.owner_key FROM users WHERE id = NEW.owner_id FOR SHARE;
	RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspaces_owner_key BEFORE INSERT OR UPDATE OF owner_id ON workspaces FOR EACH ROW EXECUTE FUNCTION workspaces_owner_key();

-- Rows are locked in the order of their ids, as every statement that locks several of them.
-- +goose StatementBegin
CREATE FUNCTION users_owner_key() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspaces SET owner_key = lower(NEW.username) WHERE id IN (SELECT w.id FROM workspaces w WHERE w.owner_id = NEW.id ORDER BY w.id FOR UPDATE);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER users_owner_key AFTER UPDATE OF username ON users FOR EACH ROW
	WHEN (lower(OLD.username) <> lower(NEW.username)) EXECUTE FUNCTION users_owner_key();

UPDATE workspaces w SET owner_key = lower(u.username) FROM users u WHERE u.id = w.owner_id;

CREATE INDEX workspaces_list ON workspaces ((latest_status = 'succeeded' AND latest_transition = 'start') DESC, owner_key, lower(name), id)
	WHERE latest_build_id IS NOT NULL AND deleted_at IS NULL AND dormant_at IS NULL;

-- Templates show how many owners they have: counted from an index that has nothing else.
CREATE INDEX workspaces_template_owners ON workspaces (template_id, owner_id) WHERE deleted_at IS NULL;
DROP INDEX workspaces_template; -- its beginning

-- Jobs that did not succeed are few.
CREATE INDEX provisioner_jobs_unsuccessful ON provisioner_jobs (organization_id, created_at DESC, id) WHERE status IN ('failed', 'canceled');

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
