-- name: GetServerFacts :one
-- Returns PostgreSQL's version, and whether it is a standby.
SELECT current_setting('server_version')::text AS version, pg_is_in_recovery()::boolean AS in_recovery;

-- name: ProbeWrite :exec
-- Writes a row, which fails on a full disk and on a standby.
INSERT INTO settings (key, value) VALUES ('health_probe', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: GetWaitingJobs :one
-- Counts the pending jobs, and returns how long the oldest has waited.
SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(created_at)), 0)::double precision AS oldest_seconds
FROM provisioner_jobs WHERE organization_id = $1 AND status = 'pending';
