-- +goose Up

-- Whether starts without a question, such as automatic ones, may replace what the template's workspaces keep while they are stopped.
ALTER TABLE template_policies ADD COLUMN allow_replacing boolean NOT NULL DEFAULT false;

-- The addresses of kept resources that the start may replace or delete. NULL: the template decides.
ALTER TABLE workspace_builds ADD COLUMN allow_replacing text[];
-- Set if the start was refused: what it would have replaced or deleted of what is kept. It has changed nothing.
ALTER TABLE workspace_builds ADD COLUMN would_replace text[] NOT NULL DEFAULT '{}';
-- What the stop created. It holds no data of a user, because the workspace has not run since.
ALTER TABLE workspace_builds ADD COLUMN created_resources text[] NOT NULL DEFAULT '{}';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
