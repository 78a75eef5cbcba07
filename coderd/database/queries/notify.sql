-- name: Notify :exec
-- Tells whoever listens on the channel, when the transaction commits.
SELECT pg_notify(sqlc.arg(channel)::text, sqlc.arg(payload)::text);
