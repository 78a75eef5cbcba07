-- name: DeleteExpiredLoginRequests :exec
DELETE FROM login_requests WHERE expires_at <= now();

-- name: InsertLoginRequest :execrows
-- Affects no row if there are too many open requests, of all or of the network, or if the code is another's.
INSERT INTO login_requests (id, secret_hash, user_code, host, program, address, network, expires_at)
SELECT sqlc.arg(id)::uuid, sqlc.arg(secret_hash)::bytea, sqlc.arg(user_code)::text, sqlc.arg(host)::text, sqlc.arg(program)::text, sqlc.arg(address)::text,
	sqlc.arg(network)::text, now() + make_interval(secs => sqlc.arg(seconds)::float8)
WHERE (SELECT count(*) FROM login_requests) < sqlc.arg(max_all)::bigint
	AND (SELECT count(*) FROM login_requests WHERE network = sqlc.arg(network)::text) < sqlc.arg(max_network)::bigint
ON CONFLICT (user_code) DO NOTHING;

-- name: GetLoginRequest :one
-- Returns an open request that no user has answered.
SELECT * FROM login_requests WHERE user_code = $1 AND expires_at > now() AND key_id = '';

-- name: AnswerLoginRequest :one
-- Stores a user's answer, the first one only.
UPDATE login_requests SET key_id = sqlc.arg(key_id), approved = sqlc.arg(approved)
WHERE user_code = sqlc.arg(user_code) AND expires_at > now() AND key_id = '' AND sqlc.arg(key_id)::text <> ''
RETURNING *;

-- name: PollLoginRequest :one
-- Notes that the program has asked, and returns the request and whether it asked less than so many seconds before.
UPDATE login_requests r SET polled_at = now()
FROM (SELECT l.id, l.polled_at FROM login_requests l WHERE l.secret_hash = sqlc.arg(secret_hash) FOR UPDATE) before
WHERE r.id = before.id
RETURNING r.id, r.key_id, r.approved, (r.expires_at > now())::boolean AS open,
	coalesce(before.polled_at > now() - make_interval(secs => sqlc.arg(seconds)::float8), false)::boolean AS hasty;

-- name: DeleteLoginRequest :execrows
DELETE FROM login_requests WHERE id = $1;
