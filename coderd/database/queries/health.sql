-- name: GetServerFacts :one
-- What PostgreSQL says of itself.
SELECT current_setting('server_version')::text AS version, pg_is_in_recovery()::boolean AS in_recovery;

-- name: ProbeWrite :exec
-- Writes what a full disk or a standby refuses.
INSERT INTO settings (key, value) VALUES ('health_probe', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: GetWaitingJobs :one
-- How many jobs nobody has taken, and for how long the oldest has waited.
SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(created_at)), 0)::double precision AS oldest_seconds
FROM provisioner_jobs WHERE organization_id = $1 AND status = 'pending';
