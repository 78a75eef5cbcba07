-- +goose Up

-- The preset that a build's parameters were taken from; null for none, and after the preset's template version is gone.
ALTER TABLE workspace_builds ADD COLUMN template_version_preset_id uuid REFERENCES template_version_presets ON DELETE SET NULL;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
