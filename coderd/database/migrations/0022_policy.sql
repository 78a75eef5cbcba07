-- +goose Up

-- What a template asks of its workspaces. A trigger gives each template its row, so that a server of an earlier version may create
-- templates meanwhile. Durations are in milliseconds, as clients send them: a client that compares the answer finds what it sent.
CREATE TABLE template_policies (
	template_id uuid PRIMARY KEY REFERENCES templates ON DELETE CASCADE,
	max_ttl_ms bigint NOT NULL DEFAULT 0 CHECK (max_ttl_ms >= 0), -- 0: no maximum lifetime
	activity_bump_ms bigint NOT NULL DEFAULT 3600000 CHECK (activity_bump_ms >= 0), -- 0: use does not postpone the stop
	notify_ms bigint NOT NULL DEFAULT 1800000 CHECK (notify_ms >= 0), -- how long before a stop it is announced; 0: not
	failure_ttl_ms bigint NOT NULL DEFAULT 0 CHECK (failure_ttl_ms >= 0), -- 0: a failed start is left as it is
	dormant_ms bigint NOT NULL DEFAULT 0 CHECK (dormant_ms >= 0), -- 0: no workspace becomes dormant
	delete_ms bigint NOT NULL DEFAULT 0 CHECK (delete_ms >= 0), -- 0: dormant workspaces are kept
	autostart_days smallint NOT NULL DEFAULT 127 CHECK (autostart_days BETWEEN 0 AND 127), -- bit 0 is Monday
	autostop_days smallint NOT NULL DEFAULT 0 CHECK (autostop_days BETWEEN 0 AND 127),
	autostop_weeks smallint NOT NULL DEFAULT 1 CHECK (autostop_weeks BETWEEN 1 AND 16),
	allow_autostart boolean NOT NULL DEFAULT true,
	allow_autostop boolean NOT NULL DEFAULT true,
	allow_cancel boolean NOT NULL DEFAULT true,
	bounds_changed_at timestamptz NOT NULL DEFAULT now() -- when what bounds running workspaces last changed
);
INSERT INTO template_policies (template_id, bounds_changed_at) SELECT id, created_at FROM templates;

-- +goose StatementBegin
CREATE FUNCTION template_policies_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO template_policies (template_id) VALUES (NEW.id);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER template_policies_insert AFTER INSERT ON templates FOR EACH ROW EXECUTE FUNCTION template_policies_insert();

-- When a user's quiet hours begin, as a daily schedule. Users without a row have the deployment's.
CREATE TABLE user_quiet_hours (
	user_id uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	schedule text NOT NULL,
	changed_at timestamptz NOT NULL DEFAULT now()
);

ALTER TABLE workspaces ADD COLUMN dormant_at timestamptz; -- null: not dormant
CREATE INDEX workspaces_dormant ON workspaces (dormant_at) WHERE deleted_at IS NULL AND dormant_at IS NOT NULL;

ALTER TABLE workspace_builds
	ADD COLUMN explanation text NOT NULL DEFAULT '', -- of a build that policy made: why
	ADD COLUMN ttl_ms bigint NOT NULL DEFAULT 0, -- the time to live that the deadline was computed with
	ADD COLUMN ttl_from text NOT NULL DEFAULT '' CHECK (ttl_from IN ('', 'template', 'workspace')), -- whose it was
	ADD COLUMN max_from text NOT NULL DEFAULT '' CHECK (max_from IN ('', 'lifetime', 'requirement')), -- which rule gave max_deadline
	ADD COLUMN bounded_at timestamptz, -- when max_deadline was computed; null: never
	ADD COLUMN extensions integer NOT NULL DEFAULT 0, -- how often a user changed the deadline
	ADD COLUMN bumped_at timestamptz; -- when use last postponed the deadline

-- The queue of the policy loop: when to look at each workspace. Triggers reset look_at when something changes that could make an action
-- due earlier; the loop then looks at once and writes the next time. tries counts automatic builds that failed or were refused since the
-- last build by a person, and retry_at is the earliest time of the next.
CREATE TABLE workspace_policy (
	workspace_id uuid PRIMARY KEY REFERENCES workspaces ON DELETE CASCADE,
	look_at timestamptz NOT NULL DEFAULT '-infinity',
	tries integer NOT NULL DEFAULT 0,
	retry_at timestamptz
);
INSERT INTO workspace_policy (workspace_id) SELECT id FROM workspaces WHERE deleted_at IS NULL;
CREATE INDEX workspace_policy_look ON workspace_policy (look_at, workspace_id);

-- What was announced to a workspace's owner, each event once for each time at which it is due.
CREATE TABLE workspace_announcements (
	workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
	event text NOT NULL,
	due_at timestamptz NOT NULL,
	PRIMARY KEY (workspace_id, event)
);

-- +goose StatementBegin
CREATE FUNCTION workspace_policy_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO workspace_policy (workspace_id) VALUES (NEW.id);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_policy_insert AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION workspace_policy_insert();

-- Use and later deadlines only postpone what is due, so they do not wake the loop.
-- +goose StatementBegin
CREATE FUNCTION workspace_policy_look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF NEW.deleted_at IS NOT NULL THEN
		DELETE FROM workspace_policy WHERE workspace_id = NEW.id;
	ELSIF NEW.latest_build_id IS DISTINCT FROM OLD.latest_build_id AND NEW.latest_reason NOT IN ('autostart', 'autostop', 'dormancy', 'autodelete') THEN
		UPDATE workspace_policy SET look_at = '-infinity', tries = 0, retry_at = NULL WHERE workspace_id = NEW.id;
	ELSIF NEW.latest_status = 'succeeded' AND OLD.latest_status <> 'succeeded' THEN
		UPDATE workspace_policy SET look_at = '-infinity', tries = 0, retry_at = NULL WHERE workspace_id = NEW.id;
	ELSE
		UPDATE workspace_policy SET look_at = '-infinity' WHERE workspace_id = NEW.id AND look_at > '-infinity';
	END IF;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER workspace_policy_look AFTER UPDATE ON workspaces FOR EACH ROW
	WHEN (OLD.latest_build_id IS DISTINCT FROM NEW.latest_build_id OR OLD.latest_status IS DISTINCT FROM NEW.latest_status
		OR OLD.autostart_schedule IS DISTINCT FROM NEW.autostart_schedule OR OLD.ttl_seconds IS DISTINCT FROM NEW.ttl_seconds
		OR OLD.dormant_at IS DISTINCT FROM NEW.dormant_at OR OLD.deleted_at IS DISTINCT FROM NEW.deleted_at
		OR OLD.owner_id IS DISTINCT FROM NEW.owner_id OR OLD.template_id IS DISTINCT FROM NEW.template_id
		OR NEW.last_used_at < OLD.last_used_at OR NEW.latest_deadline < COALESCE(OLD.latest_deadline, 'infinity'))
	EXECUTE FUNCTION workspace_policy_look();

-- Rows are locked in the order of their ids, as every statement that locks several of them.
-- +goose StatementBegin
CREATE FUNCTION template_policies_look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE workspace_policy SET look_at = '-infinity' WHERE workspace_id IN (
		SELECT p.workspace_id FROM workspace_policy p JOIN workspaces w ON w.id = p.workspace_id
		WHERE w.template_id = NEW.template_id AND w.deleted_at IS NULL ORDER BY p.workspace_id FOR UPDATE OF p);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER template_policies_look AFTER UPDATE ON template_policies FOR EACH ROW
	WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION template_policies_look();

-- +goose StatementBegin
CREATE FUNCTION owners_look(owner uuid) RETURNS void LANGUAGE sql AS $$
	UPDATE workspace_policy SET look_at = '-infinity' WHERE workspace_id IN (
		SELECT p.workspace_id FROM workspace_policy p JOIN workspaces w ON w.id = p.workspace_id
		WHERE w.owner_id = owner AND w.deleted_at IS NULL ORDER BY p.workspace_id FOR UPDATE OF p);
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE FUNCTION user_quiet_hours_look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM owners_look(COALESCE(NEW.user_id, OLD.user_id));
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER user_quiet_hours_look AFTER INSERT OR UPDATE OR DELETE ON user_quiet_hours FOR EACH ROW EXECUTE FUNCTION user_quiet_hours_look();
-- +goose StatementBegin
CREATE FUNCTION users_look() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM owners_look(NEW.id);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER users_look AFTER UPDATE OF status ON users FOR EACH ROW WHEN (OLD.status IS DISTINCT FROM NEW.status) EXECUTE FUNCTION users_look();

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
