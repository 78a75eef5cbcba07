-- name: GetSetting :one
SELECT value FROM settings WHERE key = $1;

-- name: InsertSettingOnce :exec
-- The first writer wins; read it back.
INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO NOTHING;
