-- +goose Up

-- Whether a build's template computed the value: nobody chose it. An older server stores only values that were chosen, or literal defaults.
ALTER TABLE workspace_build_parameters ADD COLUMN computed boolean NOT NULL DEFAULT false;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
