-- name: Notify :exec
-- Notifies the listeners on the channel when the transaction commits.
SELECT pg_notify(sqlc.arg(channel)::text, sqlc.arg(payload)::text);
