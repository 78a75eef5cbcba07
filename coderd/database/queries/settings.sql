-- name: GetSetting :one
SELECT value FROM settings WHERE key = $1;

-- name: InsertSettingOnce :exec
-- Stores a setting unless there is one; read the result back.
INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;

-- name: LockSetting :exec
-- Locks a setting until the transaction ends.
SELECT FROM settings WHERE key = $1 FOR UPDATE;

-- name: UpdateSetting :exec
UPDATE settings SET value = $2 WHERE key = $1;

-- name: ReplaceSetting :execrows
-- Stores a value in the place of another, unless that has changed meanwhile.
UPDATE settings SET value = sqlc.arg(after) WHERE key = $1 AND value = sqlc.arg(before)::bytea;
