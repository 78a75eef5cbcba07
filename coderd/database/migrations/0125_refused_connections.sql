-- +goose Up

-- How often a user tried within a minute what this row says was refused; 0: the row is a connection.
ALTER TABLE connection_logs ADD COLUMN refused integer NOT NULL DEFAULT 0 CHECK (refused >= 0);
CREATE INDEX connection_logs_refused ON connection_logs (connect_time DESC, id DESC) WHERE refused > 0;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
