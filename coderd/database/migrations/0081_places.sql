-- +goose Up

-- The place in the queue that a waiting job's log named last; 0: it has named none.
ALTER TABLE provisioner_jobs ADD COLUMN told_place integer NOT NULL DEFAULT 0;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
