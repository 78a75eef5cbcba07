-- +goose Up

-- When a user last set the deadline of a start: scheduled starts before that no longer move it.
ALTER TABLE workspace_builds ADD COLUMN extended_at timestamptz;
-- For an automatic stop: scheduled starts after this time are still due once it has ended. Nil means those after its end.
ALTER TABLE workspace_builds ADD COLUMN starts_since timestamptz;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
