-- name: GetSetting :one
SELECT value FROM settings WHERE key = $1;

-- name: InsertSettingOnce :exec
-- Stores a setting unless there is one; read the result back.
INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;
