-- +goose Up

-- While this is set, workspaces of the organization, and their ports, cannot be shared.
ALTER TABLE organizations ADD COLUMN sharing_disabled boolean NOT NULL DEFAULT false;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
