-- name: GetCreationKey :one
-- What a user's request with a key has created.
SELECT request_hash, object_id FROM creation_keys WHERE user_id = $1 AND key_hash = $2 AND created_at > now() - interval '24 hours';

-- name: UseCreationKey :execrows
-- Notes what a request with a key creates. It affects no row if another request has used the key; while that one is still creating something, this
-- waits for its end. The same request may note more: the first counts.
INSERT INTO creation_keys (user_id, key_hash, request_id, request_hash, object_id) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (user_id, key_hash) DO UPDATE SET
	request_id = excluded.request_id, request_hash = excluded.request_hash,
	object_id = CASE WHEN creation_keys.request_id = excluded.request_id THEN creation_keys.object_id ELSE excluded.object_id END,
	created_at = CASE WHEN creation_keys.request_id = excluded.request_id THEN creation_keys.created_at ELSE now() END
WHERE creation_keys.request_id = excluded.request_id OR creation_keys.created_at <= now() - interval '24 hours';

-- name: TrimCreationKeys :exec
-- Removes all but a user's newest keys, without those that another transaction is removing: two creations must not wait for each other here.
DELETE FROM creation_keys WHERE (user_id, key_hash) IN (
	SELECT o.user_id, o.key_hash FROM creation_keys o WHERE o.user_id = sqlc.arg(user_id) AND o.created_at <= (
		SELECT n.created_at FROM creation_keys n WHERE n.user_id = sqlc.arg(user_id) ORDER BY n.created_at DESC OFFSET sqlc.arg(kept)::int LIMIT 1
	) FOR UPDATE SKIP LOCKED
);

-- name: DeleteOldCreationKeys :execrows
-- Deletes keys that were used before a time.
DELETE FROM creation_keys WHERE (user_id, key_hash) IN (
	SELECT o.user_id, o.key_hash FROM creation_keys o WHERE o.created_at < sqlc.arg(before)::timestamptz LIMIT sqlc.arg(max_rows)
);
