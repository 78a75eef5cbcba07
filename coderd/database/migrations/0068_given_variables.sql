-- +goose Up

-- Whether a user or a file of the template gave the value. Otherwise the value shows the default, which Terraform knows better: text cannot
-- hold a null. NULL: a server from before this migration wrote the row, and the value was given if it differs from the default.
ALTER TABLE template_version_variables ADD COLUMN given boolean;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
