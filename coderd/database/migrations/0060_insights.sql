-- +goose Up

-- Reports of a period read the connections that ended since it began; those that are open have an index already.
CREATE INDEX connection_logs_ended ON connection_logs (disconnect_time) WHERE disconnect_time IS NOT NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
