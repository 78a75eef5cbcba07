-- name: InsertJob :one
INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, input, tags, priority)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *;


-- name: GetJob :one
SELECT * FROM provisioner_jobs WHERE id = $1;

-- name: LockJob :one
-- The job's row, for a transaction that changes it.
SELECT * FROM provisioner_jobs WHERE id = $1 FOR UPDATE;

-- name: ListJobsByID :many
SELECT * FROM provisioner_jobs WHERE id = ANY (sqlc.arg(ids)::uuid[]);

-- name: ListJobs :many
-- The organization's jobs, newest first. A filter that is empty or null does not filter; tags are those that a job has at least.
SELECT * FROM provisioner_jobs
WHERE organization_id = $1 AND (cardinality(sqlc.arg(statuses)::text[]) = 0 OR status = ANY (sqlc.arg(statuses)::text[]))
	AND (cardinality(sqlc.arg(ids)::uuid[]) = 0 OR id = ANY (sqlc.arg(ids)::uuid[])) AND tags @> sqlc.arg(tags)::jsonb
	AND (sqlc.narg(initiator_id)::uuid IS NULL OR initiator_id = sqlc.narg(initiator_id))
ORDER BY created_at DESC, id LIMIT sqlc.arg(max_rows);

-- name: ClaimJob :one
-- Leases the next job that a daemon with these tags may take: its tags are a subset of the daemon's, and a job without tags of
-- its own runs only on a daemon without. Walks the distinct tag sets that wait (few), and looks at the head of each queue only,
-- so that a long queue of jobs for others costs nothing. Rows that another dispatcher is claiming are passed over.
WITH RECURSIVE sets AS (
	(SELECT j.tags FROM provisioner_jobs j WHERE j.status = 'pending' AND j.organization_id = sqlc.arg(organization_id) ORDER BY j.tags LIMIT 1)
	UNION ALL
	SELECT (SELECT j.tags FROM provisioner_jobs j WHERE j.status = 'pending' AND j.organization_id = sqlc.arg(organization_id) AND j.tags > sets.tags ORDER BY j.tags LIMIT 1)
	FROM sets WHERE sets.tags IS NOT NULL
), head AS (
	SELECT first.id FROM sets CROSS JOIN LATERAL (
		SELECT j.id, j.priority, j.created_at FROM provisioner_jobs j
		WHERE j.status = 'pending' AND j.organization_id = sqlc.arg(organization_id) AND j.tags = sets.tags
		ORDER BY j.priority, j.created_at, j.id LIMIT 1 FOR UPDATE SKIP LOCKED
	) first
	WHERE sets.tags IS NOT NULL AND sets.tags <@ sqlc.arg(tags)::jsonb
		AND (sqlc.arg(untagged)::boolean OR sets.tags - 'scope' - 'owner' <> '{}')
	ORDER BY first.priority, first.created_at, first.id LIMIT 1
)
UPDATE provisioner_jobs SET status = 'running', started_at = now(), worker_id = sqlc.arg(worker_id), epoch = epoch + 1, last_seq = 0
WHERE id = (SELECT head.id FROM head) RETURNING *;

-- name: RequeueJob :execrows
-- Gives a job back that nobody accepted. The epoch stays grown.
UPDATE provisioner_jobs SET status = 'pending', worker_id = NULL, started_at = NULL
WHERE id = $1 AND epoch = $2 AND status = 'running';

-- name: AdvanceJob :exec
-- Records the last event that was applied.
UPDATE provisioner_jobs SET last_seq = $2, log_length = log_length + sqlc.arg(logged), log_overflowed = log_overflowed OR sqlc.arg(overflowed)
WHERE id = $1;

-- name: EndJob :exec
-- The job's last change.
UPDATE provisioner_jobs SET status = $2, error = $3, error_code = $4, completed_at = now(),
	canceled_at = CASE WHEN $2 = 'canceled' THEN coalesce(canceled_at, now()) ELSE canceled_at END
WHERE id = $1;

-- name: CancelJob :exec
UPDATE provisioner_jobs SET status = 'canceling', canceled_at = now() WHERE id = $1 AND status = 'running';

-- name: ListLeasedJobs :many
-- Jobs that some daemon is running.
SELECT * FROM provisioner_jobs WHERE status IN ('running', 'canceling');

-- name: ListWorkerJobs :many
-- Jobs that one daemon is running.
SELECT * FROM provisioner_jobs WHERE worker_id = $1 AND status IN ('running', 'canceling');

-- name: ListPendingPositions :many
-- Where jobs stand in the queue of their tags, from 1, and how long that queue is.
SELECT id, position::bigint AS position, size::bigint AS size FROM (
	SELECT id, row_number() OVER (PARTITION BY tags ORDER BY priority, created_at, id) AS position, count(*) OVER (PARTITION BY tags) AS size
	FROM provisioner_jobs WHERE status = 'pending'
) queue WHERE id = ANY (sqlc.arg(ids)::uuid[]);

-- name: ListJobMetadata :many
-- The template and workspace that jobs are for. A dry run names its version in its input.
SELECT j.id, coalesce(v.name, '') AS template_version_name, v.id AS template_version_id, t.id AS template_id, coalesce(t.name, '') AS template_name,
	coalesce(t.display_name, '') AS template_display_name, coalesce(t.icon, '') AS template_icon,
	w.id AS workspace_id, coalesce(w.name, '') AS workspace_name, b.id AS workspace_build_id
FROM provisioner_jobs j
LEFT JOIN workspace_builds b ON b.job_id = j.id
LEFT JOIN workspaces w ON w.id = b.workspace_id
LEFT JOIN template_versions i ON i.job_id = j.id
LEFT JOIN template_versions v ON v.id = coalesce(b.template_version_id, i.id,
	CASE WHEN j.kind = 'template_version_dry_run' THEN (j.input ->> 'template_version_id')::uuid END)
LEFT JOIN templates t ON t.id = v.template_id
WHERE j.id = ANY (sqlc.arg(ids)::uuid[]);

-- name: ListLastJobs :many
-- The last job that each daemon ended.
SELECT DISTINCT ON (worker_id) * FROM provisioner_jobs WHERE worker_id = ANY (sqlc.arg(worker_ids)::uuid[]) AND completed_at IS NOT NULL
ORDER BY worker_id, completed_at DESC;

-- name: LockSilentJobs :many
-- Jobs that have waited for a moment and whose log does not say why yet.
SELECT * FROM provisioner_jobs WHERE status = 'pending' AND log_length = 0 AND created_at < now() - make_interval(secs => sqlc.arg(seconds)::float8)
ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: GetSourceChunk :one
-- A piece of a job's source archive, from a byte on (the first is 1); empty behind its end.
SELECT substring(data FROM sqlc.arg(first_byte)::int FOR sqlc.arg(size)::int)::bytea AS data FROM files WHERE id = $1;

-- name: InsertJobLogs :exec
-- Lines, as one array a column.
INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
SELECT sqlc.arg(job_id)::uuid, unnest(sqlc.arg(created_at)::timestamptz[]), unnest(sqlc.arg(sources)::text[]), unnest(sqlc.arg(levels)::text[]),
	unnest(sqlc.arg(stages)::text[]), unnest(sqlc.arg(outputs)::text[]);

-- name: ListJobLogs :many
-- Lines between two ids, both left out, oldest first.
SELECT * FROM provisioner_job_logs WHERE job_id = $1 AND id > sqlc.arg(after) AND id < sqlc.arg(before) ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: GetFileSHA256 :one
-- The hash by which provisioners cache a source archive.
SELECT sha256 FROM files WHERE id = $1;
