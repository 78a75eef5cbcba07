-- +goose Up

-- The account that owns prebuilt workspaces until a user claims them. It is deleted from the start: whatever looks for an account, such as a
-- sign-in, a list, a group, an app's address or another program of an earlier version, does not find it. What must find it names it.
-- +goose StatementBegin
CREATE FUNCTION prebuilds_owner() RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '9a4e6c1e-52d0-4c7b-8f1e-3d2b6a70c5f1'::uuid $$;
-- +goose StatementEnd
INSERT INTO users (id, username, email, name, login_type, status, deleted_at)
VALUES (prebuilds_owner(), 'prebuilds', 'prebuilds@system.invalid', 'Prebuilt workspaces', 'none', 'active', now());

-- What the prebuilds block of a preset asks for: {"instances", "ttl_seconds", "timezone", "schedule": [{"cron", "instances"}]}; NULL without one.
ALTER TABLE template_version_presets ADD COLUMN prebuilds jsonb;
-- Why the last prebuilt workspace of the preset could not be created, and when; a later one that could be clears it.
ALTER TABLE template_version_presets ADD COLUMN prebuild_problem text NOT NULL DEFAULT '';
ALTER TABLE template_version_presets ADD COLUMN prebuild_problem_at timestamptz;
CREATE INDEX template_version_presets_prebuilds ON template_version_presets (template_version_id) WHERE prebuilds IS NOT NULL;

-- Workspaces that were prebuilt. Those that no user has claimed belong to prebuilds_owner().
CREATE TABLE prebuilt_workspaces (
	workspace_id uuid PRIMARY KEY REFERENCES workspaces ON DELETE CASCADE,
	preset_id uuid REFERENCES template_version_presets ON DELETE SET NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	started_at timestamptz, -- the first build succeeded
	failed_at timestamptz,  -- the first build did not
	claimed_at timestamptz,
	claim_build_id uuid REFERENCES workspace_builds ON DELETE SET NULL -- the build that gave it to its user
);
CREATE INDEX prebuilt_workspaces_preset ON prebuilt_workspaces (preset_id, created_at);
CREATE INDEX prebuilt_workspaces_claim_build ON prebuilt_workspaces (claim_build_id) WHERE claim_build_id IS NOT NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
