-- name: Heartbeat :exec
-- Records a server's heartbeat, and for how long its provisioners count as online after it.
INSERT INTO servers (id, beat_seconds) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET beat_at = now(), beat_seconds = excluded.beat_seconds;

-- name: DeleteServer :exec
-- Removes a server that stops in order: its daemons' sessions have ended.
DELETE FROM servers WHERE id = $1;

-- name: DeleteOldServers :exec
-- Removes servers whose heartbeats stopped long ago.
DELETE FROM servers WHERE beat_at < now() - interval '1 day';

-- name: OpenProvisioner :one
-- Records that a daemon's session begins.
INSERT INTO provisioner_daemons (id, organization_id, name, version, tags, built_in, key_id, key_name, server_id, last_seen_at, online)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, now(), true)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = excluded.version, tags = excluded.tags, built_in = excluded.built_in,
	key_id = excluded.key_id, key_name = excluded.key_name, server_id = excluded.server_id, last_seen_at = now(), online = true
RETURNING *;

-- name: CloseProvisioner :exec
-- Records that the daemon's session that began at the given time ended, unless a newer one has begun.
UPDATE provisioner_daemons SET online = false, last_seen_at = now() WHERE id = $1 AND server_id = $2 AND last_seen_at = $3;

-- name: ReconcileProvisioners :exec
-- Corrects which of a server's daemons are online, after an outage of the database. A session that began after the server's heartbeat may be
-- missing from the list.
UPDATE provisioner_daemons SET online = NOT online, last_seen_at = CASE WHEN online THEN now() ELSE last_seen_at END
WHERE server_id = $1 AND online <> (id = ANY (sqlc.arg(connected)::uuid[]))
	AND NOT (online AND last_seen_at >= (SELECT s.beat_at FROM servers s WHERE s.id = server_id));

-- name: ListServerProvisioners :many
-- Returns those of the daemons whose newest session is with this server.
SELECT id FROM provisioner_daemons WHERE server_id = $1 AND id = ANY (sqlc.arg(ids)::uuid[]);

-- name: CloseLostProvisioners :execrows
-- Marks the daemons of servers without a recent heartbeat as offline since the last one, and returns how many there were.
UPDATE provisioner_daemons d SET online = false, last_seen_at = coalesce((SELECT s.beat_at FROM servers s WHERE s.id = d.server_id), now())
WHERE d.online AND NOT EXISTS (
	SELECT FROM servers s WHERE s.id = d.server_id AND s.beat_at > now() - make_interval(secs => s.beat_seconds)
);

-- name: GetProvisionerUnseen :one
-- Returns for how many seconds a daemon has not been seen: since its server's last heartbeat, or since it went offline. It is online if that
-- heartbeat is recent, too; its server is silent if it is not, or if the server signed off.
SELECT d.name, d.built_in, d.last_seen_at,
	coalesce(d.online AND s.beat_at > now() - make_interval(secs => s.beat_seconds), false)::boolean AS online,
	coalesce(s.beat_at < now() - make_interval(secs => s.beat_seconds), true)::boolean AS silent,
	extract(epoch FROM now() - coalesce(CASE WHEN d.online THEN s.beat_at END, d.last_seen_at, d.created_at))::float8 AS unseen_seconds
FROM provisioner_daemons d LEFT JOIN servers s ON s.id = d.server_id WHERE d.id = $1;

-- name: ListProvisioners :many
-- Those that take jobs of an organization. Built-in ones take jobs of all organizations.
SELECT * FROM provisioner_daemons WHERE organization_id = $1 OR built_in ORDER BY online DESC, name;

-- name: DeleteStaleProvisioners :exec
-- Deletes daemons that have not been seen for a week and run no job. Call CloseLostProvisioners first.
DELETE FROM provisioner_daemons d WHERE NOT d.online AND d.last_seen_at < now() - interval '7 days'
	AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.worker_id = d.id AND j.completed_at IS NULL);

-- name: ForgetProvisionerName :exec
-- Frees the name of an idle offline daemon for one that joins with another credential.
DELETE FROM provisioner_daemons d WHERE d.organization_id = $1 AND d.name = $2 AND d.id <> sqlc.arg(keep_id) AND NOT d.online
	AND NOT EXISTS (SELECT FROM provisioner_jobs j WHERE j.worker_id = d.id AND j.completed_at IS NULL);

-- name: InsertProvisionerKey :one
INSERT INTO provisioner_keys (id, organization_id, name, tags, secret_hash, created_by) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;

-- name: GetProvisionerKeyBySecret :one
-- Returns the key that a daemon presents.
SELECT * FROM provisioner_keys WHERE secret_hash = $1;

-- name: ListProvisionerKeys :many
SELECT * FROM provisioner_keys WHERE organization_id = $1 ORDER BY lower(name);

-- name: DeleteProvisionerKey :one
DELETE FROM provisioner_keys WHERE organization_id = $1 AND lower(name) = lower(sqlc.arg(name)) RETURNING id;

-- name: ListExistingProvisionerKeys :many
-- Returns those of the keys that have not been deleted.
SELECT id FROM provisioner_keys WHERE id = ANY (sqlc.arg(ids)::uuid[]);
