-- name: OpenProvisioner :one
-- A daemon's session begins.
INSERT INTO provisioner_daemons (id, organization_id, name, version, tags, built_in, key_id, key_name, last_seen_at, online)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now(), true)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, tags = excluded.tags, built_in = excluded.built_in,
	key_id = excluded.key_id, key_name = excluded.key_name, last_seen_at = now(), online = true
RETURNING *;

-- name: CloseProvisioner :exec
-- A daemon's session ended, unless a newer one has begun since the one that began at the given time.
UPDATE provisioner_daemons SET online = false, last_seen_at = now() WHERE id = $1 AND last_seen_at = $2;

-- name: ConfirmProvisioners :exec
-- These daemons have sessions here: what a starting replica assumed of them is wrong.
UPDATE provisioner_daemons SET online = true WHERE id = ANY (sqlc.arg(ids)::uuid[]) AND NOT online;

-- name: IsProvisionerOnline :one
SELECT online FROM provisioner_daemons WHERE id = $1;

-- name: CloseAllProvisioners :exec
-- After a restart nobody is connected to this server yet; other replicas confirm theirs.
UPDATE provisioner_daemons SET online = false WHERE online;

-- name: ListProvisioners :many
SELECT * FROM provisioner_daemons WHERE organization_id = $1 ORDER BY online DESC, name;

-- name: DeleteStaleProvisioners :exec
-- Built-in daemons of servers that no longer run, and daemons not seen for a week that no job refers to.
DELETE FROM provisioner_daemons d WHERE NOT d.online AND d.last_seen_at < now() - interval '7 days'
	AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.worker_id = d.id AND j.completed_at IS NULL);

-- name: ForgetProvisionerName :exec
-- Frees the name of a daemon that is offline and runs nothing, for one that joins with another credential.
DELETE FROM provisioner_daemons d WHERE d.organization_id = $1 AND d.name = $2 AND d.id <> sqlc.arg(keep_id) AND NOT d.online
	AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.worker_id = d.id AND j.completed_at IS NULL);

-- name: InsertProvisionerKey :one
INSERT INTO provisioner_keys (id, organization_id, name, tags, secret_hash, created_by) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;

-- name: GetProvisionerKeyBySecret :one
-- The key that a daemon shows.
SELECT * FROM provisioner_keys WHERE secret_hash = $1;

-- name: ListProvisionerKeys :many
SELECT * FROM provisioner_keys WHERE organization_id = $1 ORDER BY lower(name);

-- name: DeleteProvisionerKey :one
DELETE FROM provisioner_keys WHERE organization_id = $1 AND lower(name) = lower(sqlc.arg(name)) RETURNING id;

-- name: ListExistingProvisionerKeys :many
-- Those of the keys that have not been deleted.
SELECT id FROM provisioner_keys WHERE id = ANY (sqlc.arg(ids)::uuid[]);
