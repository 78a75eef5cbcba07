-- +goose Up

-- Since when users have had a status, for the number of users by status on past days. Deleted users have the status deleted.
CREATE TABLE user_statuses (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	status text NOT NULL CHECK (status IN ('active', 'dormant', 'suspended', 'deleted')),
	since timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX user_statuses_user ON user_statuses (user_id, since DESC, id DESC);

-- Of users who exist already, only the time of their latest change is known.
INSERT INTO user_statuses (user_id, status, since) SELECT id, 'active', created_at FROM users;
INSERT INTO user_statuses (user_id, status, since)
	SELECT id, CASE WHEN deleted_at IS NULL THEN status ELSE 'deleted' END, coalesce(deleted_at, updated_at) FROM users
	WHERE deleted_at IS NOT NULL OR status <> 'active';

-- +goose StatementBegin
CREATE FUNCTION note_user_status() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO user_statuses (user_id, status)
	VALUES (NEW.id, CASE WHEN NEW.deleted_at IS NULL THEN NEW.status ELSE 'deleted' END);
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER user_status_begins AFTER INSERT ON users FOR EACH ROW EXECUTE FUNCTION note_user_status();
CREATE TRIGGER user_status_changes AFTER UPDATE OF status, deleted_at ON users FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR (OLD.deleted_at IS NULL) <> (NEW.deleted_at IS NULL))
	EXECUTE FUNCTION note_user_status();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
