-- +goose Up

-- The median round trip between the workspace and its client, in microseconds; null: it is not known.
ALTER TABLE connection_logs ADD COLUMN latency_us bigint CHECK (latency_us > 0);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
