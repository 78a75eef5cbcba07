-- name: PutACMEData :exec
-- Certificates, keys, the account and pending challenges of ACME are settings whose keys begin with acme:.
INSERT INTO settings (key, value) VALUES ('acme:' || sqlc.arg(name)::text, sqlc.arg(value)) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: GetACMEData :one
SELECT value FROM settings WHERE key = 'acme:' || sqlc.arg(name)::text;

-- name: DeleteACMEData :exec
DELETE FROM settings WHERE key = 'acme:' || sqlc.arg(name)::text;
