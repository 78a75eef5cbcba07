-- +goose Up

-- The span of the request that asked for a job, as a W3C traceparent; empty when it is not traced. Older programs leave it empty.
ALTER TABLE provisioner_jobs ADD COLUMN trace_parent text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
