-- +goose Up

-- Who did what. A row is written in the transaction of the change that it describes, and never changed. Nothing refers to other
-- tables: a row outlives what it names.
CREATE TABLE audit_logs (
	id uuid PRIMARY KEY, -- version 7: rows of one moment are in the order in which they were written
	created_at timestamptz NOT NULL DEFAULT now(),
	organization_id uuid,
	user_id uuid, -- who acted; null: the server, an operator on its host, or a person who is not signed in
	actor text NOT NULL, -- the user's name at that time, or what acted instead of a user
	action text NOT NULL,
	resource_type text NOT NULL,
	resource_id uuid, -- null if the object has no UUID
	resource_target text NOT NULL, -- the object's name at that time
	diff jsonb NOT NULL DEFAULT '{}', -- field: {"old", "new", "secret"}
	additional_fields jsonb NOT NULL DEFAULT '{}',
	build_reason text NOT NULL DEFAULT '',
	status_code integer NOT NULL,
	request_id uuid,
	ip text NOT NULL DEFAULT '',
	user_agent text NOT NULL DEFAULT ''
);
-- One for each filter, in the order of the list.
CREATE INDEX audit_logs_time ON audit_logs (created_at DESC, id DESC);
CREATE INDEX audit_logs_organization ON audit_logs (organization_id, created_at DESC, id DESC);
CREATE INDEX audit_logs_user ON audit_logs (user_id, created_at DESC, id DESC);
CREATE INDEX audit_logs_action ON audit_logs (action, created_at DESC, id DESC);
CREATE INDEX audit_logs_type ON audit_logs (resource_type, created_at DESC, id DESC);
CREATE INDEX audit_logs_object ON audit_logs (resource_id, created_at DESC, id DESC);
CREATE INDEX audit_logs_target ON audit_logs (lower(resource_target), created_at DESC, id DESC);
CREATE INDEX audit_logs_reason ON audit_logs (build_reason, created_at DESC, id DESC) WHERE build_reason <> '';
CREATE INDEX audit_logs_request ON audit_logs (request_id);

-- +goose StatementBegin
CREATE FUNCTION audit_logs_fixed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'rows of the audit log cannot be changed';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_logs_fixed BEFORE UPDATE ON audit_logs FOR EACH ROW EXECUTE FUNCTION audit_logs_fixed();

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
