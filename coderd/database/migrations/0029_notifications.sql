-- +goose Up

-- The outbox: a row per recipient and method, written in the transaction of the event. Servers claim rows that are due: a claim moves
-- next_at to the end of the server's lease, so that another server takes the row over if the first one dies.
CREATE TABLE notification_messages (
	id uuid PRIMARY KEY,
	template_id uuid NOT NULL,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	method text NOT NULL CHECK (method IN ('inbox', 'smtp', 'webhook')),
	labels jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'), -- the facts that the template's text names
	targets uuid[] NOT NULL DEFAULT '{}', -- the objects that the event is about
	dedupe text, -- events of a day that are announced once
	status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
	attempts integer NOT NULL DEFAULT 0,
	lease uuid, -- of the last attempt: the result of an attempt whose lease was lost is ignored
	next_at timestamptz NOT NULL DEFAULT now(),
	error text NOT NULL DEFAULT '', -- why the last attempt failed
	created_at timestamptz NOT NULL DEFAULT now(),
	finished_at timestamptz,
	CHECK ((status = 'pending') = (finished_at IS NULL))
);
CREATE INDEX notification_messages_due ON notification_messages (method, next_at) WHERE status = 'pending';
CREATE INDEX notification_messages_finished ON notification_messages (finished_at) WHERE status <> 'pending';
CREATE UNIQUE INDEX notification_messages_dedupe ON notification_messages (dedupe);
CREATE INDEX notification_messages_user ON notification_messages (user_id);

-- +goose StatementBegin
CREATE FUNCTION notification_messages_recorded() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('notifications', 'recorded');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER notification_messages_recorded AFTER INSERT ON notification_messages
	FOR EACH STATEMENT EXECUTE FUNCTION notification_messages_recorded();

-- What users find in their inbox. The id is that of the message.
CREATE TABLE inbox_notifications (
	id uuid PRIMARY KEY,
	sequence bigint NOT NULL GENERATED ALWAYS AS IDENTITY, -- orders the inbox
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	template_id uuid NOT NULL,
	targets uuid[] NOT NULL DEFAULT '{}',
	title text NOT NULL,
	content text NOT NULL, -- Markdown
	content_plain text NOT NULL,
	icon text NOT NULL DEFAULT '',
	actions jsonb NOT NULL DEFAULT '[]' CHECK (jsonb_typeof(actions) = 'array'),
	read_at timestamptz,
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX inbox_notifications_user ON inbox_notifications (user_id, sequence);
CREATE INDEX inbox_notifications_unread ON inbox_notifications (user_id) WHERE read_at IS NULL;
CREATE INDEX inbox_notifications_read ON inbox_notifications (read_at) WHERE read_at IS NOT NULL;

-- Watchers of an inbox and its user's pages look again when it changes.
-- +goose StatementBegin
CREATE FUNCTION inbox_notifications_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('inbox:' || NEW.user_id, 'changed');
	PERFORM pg_notify('events', 'inbox ' || NEW.id || ' ' || NEW.user_id || '  ');
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER inbox_notifications_changed AFTER INSERT OR UPDATE OF read_at ON inbox_notifications
	FOR EACH ROW EXECUTE FUNCTION inbox_notifications_changed();

-- How administrators want an event delivered; events without a row use the deployment's method.
CREATE TABLE notification_methods (
	template_id uuid PRIMARY KEY,
	method text NOT NULL CHECK (method IN ('smtp', 'webhook')),
	updated_at timestamptz NOT NULL DEFAULT now()
);

-- Which events users do not want.
CREATE TABLE notification_preferences (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	template_id uuid NOT NULL,
	disabled boolean NOT NULL,
	updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (user_id, template_id)
);

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
