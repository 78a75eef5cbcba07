-- +goose Up

-- Why claims of the prebuilt workspace wait for their build: sentences for the template's author. '{}': they are instant. NULL: its build has
-- not succeeded, or neither its provisioner nor its server could tell.
ALTER TABLE prebuilt_workspaces ADD COLUMN claim_waits text[];

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
