-- +goose Up

-- Prebuilt workspaces of the preset from before this are replaced, and no user gets them. NULL: those of all times are good.
ALTER TABLE template_version_presets ADD COLUMN prebuilds_invalidated_at timestamptz;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
