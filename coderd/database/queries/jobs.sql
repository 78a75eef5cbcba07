-- name: InsertJob :one
INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, input, tags, priority, trace_parent)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING *;


-- name: GetJob :one
SELECT * FROM provisioner_jobs WHERE id = $1;

-- name: LockJob :one
-- Locks a job, for a transaction that changes it.
SELECT * FROM provisioner_jobs WHERE id = $1 FOR UPDATE;

-- name: ListJobsByID :many
-- Here and below, a subquery unnests the ids: PostgreSQL would plan anew for each array, which costs more than the query.
SELECT * FROM provisioner_jobs WHERE id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[])));

-- name: ListJobs :many
-- Lists the organization's jobs, newest first. Empty and null filters match all jobs; tags match jobs that have at least those.
SELECT * FROM provisioner_jobs
WHERE organization_id = $1 AND (cardinality(sqlc.arg(statuses)::text[]) = 0 OR status = ANY (sqlc.arg(statuses)::text[]))
	AND (cardinality(sqlc.arg(ids)::uuid[]) = 0 OR id = ANY (sqlc.arg(ids)::uuid[])) AND tags @> sqlc.arg(tags)::jsonb
	AND (sqlc.narg(initiator_id)::uuid IS NULL OR initiator_id = sqlc.narg(initiator_id))
ORDER BY created_at DESC, id LIMIT sqlc.arg(page_limit) OFFSET sqlc.arg(page_offset);

-- name: LeaseJob :one
-- Leases the next job that a daemon with these tags may take, of an organization between two ids: a daemon serves one, a built-in daemon
-- all of them. The job's tags are a subset of the daemon's, and a job without tags of its own runs only on a daemon without. Jobs that
-- people wait for come first. Among those, the initiator with the fewest running jobs is served first, then the one whose last job began
-- the longest ago; each initiator's jobs start in order of age. The query walks the distinct tag sets and initiators that wait, which are
-- few, and reads only the heads of their queues, so its cost does not depend on the length of the queue. It skips rows that another
-- server is leasing.
WITH RECURSIVE sets AS (
	(SELECT j.organization_id, j.tags FROM provisioner_jobs j
	WHERE j.status = 'pending' AND j.organization_id >= sqlc.arg(first_organization)::uuid AND j.organization_id <= sqlc.arg(last_organization)::uuid
	ORDER BY j.organization_id, j.tags LIMIT 1)
	UNION ALL
	SELECT following.organization_id, following.tags FROM sets CROSS JOIN LATERAL (
		SELECT j.organization_id, j.tags FROM provisioner_jobs j
		WHERE j.status = 'pending' AND (j.organization_id, j.tags) > (sets.organization_id, sets.tags) AND j.organization_id <= sqlc.arg(last_organization)::uuid
		ORDER BY j.organization_id, j.tags LIMIT 1
	) following
), takable AS (
	SELECT sets.organization_id, sets.tags, first.priority FROM sets CROSS JOIN LATERAL (
		SELECT j.priority FROM provisioner_jobs j WHERE j.status = 'pending' AND j.organization_id = sets.organization_id AND j.tags = sets.tags
		ORDER BY j.priority LIMIT 1
	) first
	WHERE sets.tags <@ sqlc.arg(tags)::jsonb AND (sqlc.arg(untagged)::boolean OR sets.tags - 'scope' - 'owner' <> '{}')
), waiting AS (
	SELECT t.organization_id, t.tags, t.priority, first.initiator_id FROM takable t CROSS JOIN LATERAL (
		SELECT j.initiator_id FROM provisioner_jobs j
		WHERE j.status = 'pending' AND j.organization_id = t.organization_id AND j.tags = t.tags AND j.priority = t.priority
		ORDER BY j.initiator_id LIMIT 1
	) first
	WHERE t.priority = (SELECT min(priority) FROM takable)
	UNION ALL
	SELECT w.organization_id, w.tags, w.priority, following.initiator_id FROM waiting w CROSS JOIN LATERAL (
		SELECT j.initiator_id FROM provisioner_jobs j
		WHERE j.status = 'pending' AND j.organization_id = w.organization_id AND j.tags = w.tags AND j.priority = w.priority AND j.initiator_id > w.initiator_id
		ORDER BY j.initiator_id LIMIT 1
	) following
), busy AS (
	SELECT r.initiator_id, count(*) AS jobs FROM provisioner_jobs r WHERE r.status IN ('running', 'canceling') GROUP BY r.initiator_id
), turns AS (
	SELECT w.organization_id, w.tags, w.priority, w.initiator_id, coalesce(busy.jobs, 0) AS jobs,
		(SELECT max(l.started_at) FROM provisioner_jobs l WHERE l.initiator_id = w.initiator_id) AS served_at
	FROM waiting w LEFT JOIN busy ON busy.initiator_id = w.initiator_id
), heads AS (
	SELECT first.id, turns.jobs, turns.served_at, first.created_at FROM turns CROSS JOIN LATERAL (
		SELECT j.id, j.created_at FROM provisioner_jobs j
		WHERE j.status = 'pending' AND j.organization_id = turns.organization_id AND j.tags = turns.tags AND j.priority = turns.priority
			AND j.initiator_id = turns.initiator_id
		ORDER BY j.created_at, j.id LIMIT 4
	) first
	ORDER BY turns.jobs, turns.served_at NULLS FIRST, first.created_at, first.id LIMIT 16
), head AS (
	SELECT j.id FROM heads JOIN provisioner_jobs j ON j.id = heads.id
	WHERE j.status = 'pending'
	ORDER BY heads.jobs, heads.served_at NULLS FIRST, heads.created_at, heads.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED
)
UPDATE provisioner_jobs SET status = 'running', started_at = now(), worker_id = sqlc.arg(worker_id), epoch = epoch + 1, last_seq = 0, absent_since = NULL, interrupted_at = NULL
WHERE id = (SELECT head.id FROM head) RETURNING *;

-- name: RequeueJob :exec
-- Requeues a job that its daemon did not accept. The epoch keeps its new value.
UPDATE provisioner_jobs SET status = 'pending', worker_id = NULL, started_at = NULL
WHERE id = $1 AND epoch = $2 AND status = 'running';

-- name: AdvanceJob :exec
-- Records the last applied event, and tells those who follow the log when the transaction commits.
WITH job AS (
	UPDATE provisioner_jobs SET last_seq = $2, log_length = log_length + sqlc.arg(logged)::bigint, log_overflowed = log_overflowed OR sqlc.arg(overflowed)
	WHERE id = $1 RETURNING id
)
SELECT pg_notify('job:' || job.id, job.id::text) FROM job WHERE sqlc.arg(logged)::bigint > 0;

-- name: EndJob :exec
-- Ends a locked job, with the last applied event and the size of its log. Nothing changes it afterwards.
UPDATE provisioner_jobs SET status = $2, error = $3, error_code = $4, last_seq = $5, log_length = $6, log_overflowed = $7, completed_at = now(),
	canceled_at = CASE WHEN $2 = 'canceled' THEN coalesce(canceled_at, now()) ELSE canceled_at END
WHERE id = $1;

-- name: CancelJob :exec
UPDATE provisioner_jobs SET status = 'canceling', canceled_at = now() WHERE id = $1 AND status = 'running';

-- name: ListLeasedJobs :many
-- Lists the jobs that daemons are running.
SELECT * FROM provisioner_jobs WHERE status IN ('running', 'canceling');

-- name: ListWorkerJobs :many
-- Lists the jobs that one daemon is running.
SELECT * FROM provisioner_jobs WHERE worker_id = $1 AND status IN ('running', 'canceling');

-- name: ListAbsences :many
-- Lists the running jobs whose daemon has been offline for a number of seconds, and those that are marked although their daemon is back.
SELECT sqlc.embed(j), d.name, d.built_in, d.online, d.last_seen_at FROM provisioner_jobs j JOIN provisioner_daemons d ON d.id = j.worker_id
WHERE j.status IN ('running', 'canceling')
	AND (j.absent_since IS NOT NULL OR NOT d.online AND d.last_seen_at < now() - make_interval(secs => sqlc.arg(seconds)::float8));

-- name: MarkJobAbsent :exec
-- Notes since when a locked job's daemon has been offline; NULL when it is back.
UPDATE provisioner_jobs SET absent_since = $2 WHERE id = $1;

-- name: MarkJobsStopping :exec
-- Notes when the jobs that a server's own provisioners run are interrupted, because the server is stopping.
UPDATE provisioner_jobs j SET interrupted_at = sqlc.arg(at)::timestamptz FROM provisioner_daemons d
WHERE d.server_id = sqlc.arg(server_id)::uuid AND d.built_in AND j.worker_id = d.id AND j.status IN ('running', 'canceling');

-- name: ListAwaitedJobs :many
-- Returns the jobs for which stopping servers wait, those that are interrupted first at the beginning.
SELECT j.id, j.kind, j.interrupted_at, d.server_id, d.name AS provisioner, i.username AS initiator, coalesce(o.username, '') AS owner, coalesce(w.name, '') AS workspace,
	coalesce(b.build_number, 0) AS build_number, coalesce(b.transition, '') AS transition, coalesce(t.name, '') AS template
FROM provisioner_jobs j
JOIN provisioner_daemons d ON d.id = j.worker_id
JOIN users i ON i.id = j.initiator_id
LEFT JOIN workspace_builds b ON b.job_id = j.id
LEFT JOIN workspaces w ON w.id = b.workspace_id
LEFT JOIN users o ON o.id = w.owner_id
LEFT JOIN template_versions v ON v.id = coalesce(b.template_version_id, (SELECT r.id FROM template_versions r WHERE r.job_id = j.id))
LEFT JOIN templates t ON t.id = v.template_id
WHERE j.status IN ('running', 'canceling') AND j.interrupted_at IS NOT NULL AND d.server_id IS NOT NULL
ORDER BY j.interrupted_at, j.created_at, j.id;

-- name: ListPendingPositions :many
-- Returns the positions of jobs in the queue of their tags, from 1, and the length of that queue, in the order in which LeaseJob would
-- lease them if all jobs took the same time.
SELECT queue.id, queue.position::bigint AS position, queue.size::bigint AS size FROM (
	SELECT DISTINCT a.tags FROM provisioner_jobs a WHERE a.id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[]))) AND a.status = 'pending'
) asked CROSS JOIN LATERAL (
	SELECT turns.id, row_number() OVER (ORDER BY turns.priority, turns.turn, turns.created_at, turns.id) AS position, count(*) OVER () AS size
	FROM (
		SELECT j.id, j.priority, j.created_at, coalesce(busy.jobs, 0) + row_number() OVER (PARTITION BY j.priority, j.initiator_id ORDER BY j.created_at, j.id) AS turn
		FROM provisioner_jobs j LEFT JOIN (
			SELECT r.initiator_id, count(*) AS jobs FROM provisioner_jobs r WHERE r.status IN ('running', 'canceling') GROUP BY r.initiator_id
		) busy ON busy.initiator_id = j.initiator_id
		WHERE j.status = 'pending' AND j.tags = asked.tags
	) turns
) queue WHERE queue.id = ANY (sqlc.arg(ids)::uuid[]);

-- name: ListJobMetadata :many
-- Returns the template and workspace that jobs are for. A dry run names its version in its input.
SELECT j.id, coalesce(v.name, '') AS template_version_name, v.id AS template_version_id, t.id AS template_id, coalesce(t.name, '') AS template_name,
	coalesce(t.display_name, '') AS template_display_name, coalesce(t.icon, '') AS template_icon,
	w.id AS workspace_id, coalesce(w.name, '') AS workspace_name, b.id AS workspace_build_id
FROM provisioner_jobs j
LEFT JOIN workspace_builds b ON b.job_id = j.id
LEFT JOIN workspace_plans p ON p.job_id = j.id
LEFT JOIN workspaces w ON w.id = coalesce(b.workspace_id, p.workspace_id)
LEFT JOIN template_versions i ON i.job_id = j.id
LEFT JOIN template_versions v ON v.id = coalesce(b.template_version_id, i.id,
	CASE WHEN j.kind = 'template_version_dry_run' THEN (j.input ->> 'template_version_id')::uuid END)
LEFT JOIN templates t ON t.id = v.template_id
WHERE j.id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[])));

-- name: ListLastJobs :many
-- Returns the last job that each daemon ended.
SELECT j.* FROM unnest(sqlc.arg(worker_ids)::uuid[]) worker(id) CROSS JOIN LATERAL (
	SELECT l.id FROM provisioner_jobs l WHERE l.worker_id = worker.id AND l.completed_at IS NOT NULL ORDER BY l.completed_at DESC LIMIT 1
) last JOIN provisioner_jobs j ON j.id = last.id;

-- name: LockSilentJobs :many
-- Locks the jobs that have waited for a while and whose log does not contain the reason yet.
SELECT * FROM provisioner_jobs WHERE status = 'pending' AND log_length = 0 AND created_at < now() - make_interval(secs => sqlc.arg(seconds)::float8)
ORDER BY created_at LIMIT 100 FOR UPDATE SKIP LOCKED;

-- name: LockPendingJobs :many
-- Locks the jobs that wait whose log says what they wait for, oldest first.
SELECT * FROM provisioner_jobs WHERE status = 'pending' AND log_length > 0 ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED;

-- name: ListAnnouncedPlaces :many
-- Lists the waiting jobs whose log names a place in the queue behind others, oldest first.
SELECT id, told_place FROM provisioner_jobs WHERE status = 'pending' AND told_place > 1 ORDER BY created_at LIMIT 1000;

-- name: LockWaitingJobs :many
-- Locks those of some jobs that wait.
SELECT * FROM provisioner_jobs WHERE id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[]))) AND status = 'pending' ORDER BY created_at FOR UPDATE SKIP LOCKED;

-- name: SetAnnouncedPlace :exec
-- Notes the place in the queue that a locked job's log names.
UPDATE provisioner_jobs SET told_place = $2 WHERE id = $1;

-- name: ListWorkerLoads :many
-- Returns how many jobs each daemon runs, and until when it does if its server is stopping. Daemons that run none are missing.
SELECT worker_id::uuid AS worker_id, count(*) AS jobs, bool_or(interrupted_at IS NOT NULL)::boolean AS leaves, coalesce(max(interrupted_at), now())::timestamptz AS until
FROM provisioner_jobs WHERE worker_id IS NOT NULL AND status IN ('running', 'canceling') GROUP BY worker_id;

-- name: GetUsualJobSeconds :one
-- Returns how long the last jobs of an organization with the same tags ran on average, in seconds; 0 if none has succeeded.
SELECT coalesce(avg(extract(epoch FROM last.completed_at - last.started_at)), 0)::float8 AS seconds FROM (
	SELECT j.started_at, j.completed_at, j.status, j.tags FROM provisioner_jobs j WHERE j.organization_id = $1 ORDER BY j.created_at DESC LIMIT 200
) last WHERE last.status = 'succeeded' AND last.tags = sqlc.arg(tags)::jsonb AND last.started_at IS NOT NULL;

-- name: GetSourceChunk :one
-- Returns a piece of a job's source archive from a byte on, where the first byte is 1; empty after the end.
SELECT substring(data FROM sqlc.arg(first_byte)::int FOR sqlc.arg(size)::int)::bytea AS data FROM files WHERE id = $1;

-- name: InsertJobLogs :exec
-- Stores lines, given as one array for each column.
INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output)
SELECT sqlc.arg(job_id)::uuid, unnest(sqlc.arg(created_at)::timestamptz[]), unnest(sqlc.arg(sources)::text[]), unnest(sqlc.arg(levels)::text[]),
	unnest(sqlc.arg(stages)::text[]), unnest(sqlc.arg(outputs)::text[]);

-- name: ListJobLogs :many
-- Lists lines between two ids, exclusive, oldest first.
SELECT * FROM provisioner_job_logs WHERE job_id = $1 AND id > sqlc.arg(after) AND id < sqlc.arg(before) ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: GetFileSHA256 :one
-- Returns the hash under which provisioners cache a source archive.
SELECT sha256 FROM files WHERE id = $1;

-- name: UpsertJobChanges :exec
-- Stores the last step of each resource that a job changes. Addresses must be distinct.
INSERT INTO provisioner_job_changes (job_id, digest, address, creates, ended)
SELECT sqlc.arg(job_id)::uuid, unnest(sqlc.arg(digests)::bytea[]), unnest(sqlc.arg(addresses)::text[]), unnest(sqlc.arg(creates)::boolean[]), unnest(sqlc.arg(ended)::text[])
ON CONFLICT (job_id, digest) DO UPDATE SET creates = EXCLUDED.creates, ended = EXCLUDED.ended;

-- name: ListJobChanges :many
SELECT address, creates, ended FROM provisioner_job_changes WHERE job_id = $1 ORDER BY address;

-- name: DeleteJobParts :exec
-- Deletes what is kept only while a job runs: the last steps of its changes, and pieces of a state.
WITH changes AS (DELETE FROM provisioner_job_changes c WHERE c.job_id = $1)
DELETE FROM provisioner_job_state_pieces p WHERE p.job_id = $1;

-- name: InsertStatePiece :exec
INSERT INTO provisioner_job_state_pieces (job_id, first_byte, size, data) VALUES ($1, $2, $3, $4);

-- name: CountStatePieces :one
-- Returns how many bytes of a state have been stored.
SELECT COALESCE(sum(size), 0)::bigint FROM provisioner_job_state_pieces WHERE job_id = $1;

-- name: ListStatePieces :many
SELECT first_byte, size FROM provisioner_job_state_pieces WHERE job_id = $1 ORDER BY first_byte;

-- name: GetStatePiece :one
SELECT data FROM provisioner_job_state_pieces WHERE job_id = $1 AND first_byte = $2;

-- name: DeleteStatePieces :exec
DELETE FROM provisioner_job_state_pieces WHERE job_id = $1;
