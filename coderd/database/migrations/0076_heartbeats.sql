-- +goose Up

-- For how many seconds after a heartbeat the server's provisioners count as online: several of its intervals. Older programs write a heartbeat
-- every 5 s.
ALTER TABLE servers ADD COLUMN beat_seconds float8 NOT NULL DEFAULT 30;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
