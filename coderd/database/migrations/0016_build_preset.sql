-- +goose Up

-- The preset that a build's parameters come from; null if there is none, or once the preset's template version is deleted.
ALTER TABLE workspace_builds ADD COLUMN template_version_preset_id uuid REFERENCES template_version_presets ON DELETE SET NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
