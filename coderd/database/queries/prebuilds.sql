-- name: ListPrebuildTemplates :many
-- Lists the templates whose active version has prebuilt workspaces, or that have some left of another version.
SELECT t.id FROM templates t
WHERE t.deleted_at IS NULL AND EXISTS (SELECT FROM template_version_presets p WHERE p.template_version_id = t.active_version_id AND p.prebuilds IS NOT NULL)
UNION
SELECT w.template_id FROM workspaces w WHERE w.owner_id = prebuilds_owner() AND w.deleted_at IS NULL;

-- name: TryLockPrebuilds :one
-- Reports whether this transaction may decide about a template's prebuilt workspaces: one server does at a time.
SELECT pg_try_advisory_xact_lock(hashtextextended('prebuilds ' || sqlc.arg(template_id)::uuid::text, 0)) AS locked;

-- name: ListPrebuildPools :many
-- Lists the presets of a template's active version with prebuilt workspaces. failures counts those that failed since the last one that did not,
-- and since the given time.
SELECT p.id, p.name, p.prebuilds, p.prebuilds_invalidated_at, p.prebuild_problem, p.prebuild_problem_at, f.failures, f.failed_at::timestamptz AS failed_at
FROM templates t
JOIN template_version_presets p ON p.template_version_id = t.active_version_id AND p.prebuilds IS NOT NULL
JOIN LATERAL (
	SELECT count(*) AS failures, COALESCE(max(b.failed_at), 'epoch') AS failed_at FROM prebuilt_workspaces b
	WHERE b.preset_id = p.id AND b.failed_at > sqlc.arg(since)::timestamptz
		AND b.failed_at > COALESCE((SELECT max(s.started_at) FROM prebuilt_workspaces s WHERE s.preset_id = p.id), '-infinity')
) f ON true
WHERE t.id = sqlc.arg(template_id) AND t.deleted_at IS NULL
ORDER BY p.name;

-- name: InvalidatePrebuilds :many
-- Has the prebuilt workspaces of a template's active version replaced that exist now, and returns the presets that have any.
UPDATE template_version_presets p SET prebuilds_invalidated_at = now()
FROM templates t
JOIN template_versions v ON v.id = t.active_version_id
WHERE t.id = $1 AND t.deleted_at IS NULL AND p.template_version_id = v.id AND p.prebuilds IS NOT NULL
RETURNING p.name AS preset_name, v.name AS version_name;

-- name: ListPrebuilt :many
-- Lists a template's prebuilt workspaces that no user has claimed, the oldest first. ready means that all agents have run their start scripts.
SELECT w.id, b.preset_id, b.created_at, w.latest_version_id, COALESCE(w.latest_transition, '')::text AS transition, COALESCE(w.latest_status, '')::text AS status,
	q.retry_at,
	NOT EXISTS (SELECT FROM workspace_agents a WHERE a.workspace_id = w.id AND a.token_hash IS NOT NULL AND a.parent_id IS NULL
		AND (agent_status(a) <> 'connected' OR a.lifecycle_state <> 'ready')) AS ready
FROM workspaces w
JOIN prebuilt_workspaces b ON b.workspace_id = w.id
LEFT JOIN workspace_policy q ON q.workspace_id = w.id
WHERE w.template_id = $1 AND w.owner_id = prebuilds_owner() AND w.deleted_at IS NULL
ORDER BY b.created_at, w.id;

-- name: LockPrebuilt :one
-- Locks a prebuilt workspace that no user has claimed; no row if another transaction has it.
SELECT * FROM workspaces WHERE id = $1 AND owner_id = prebuilds_owner() AND deleted_at IS NULL FOR UPDATE SKIP LOCKED;

-- name: InsertPrebuilt :exec
INSERT INTO prebuilt_workspaces (workspace_id, preset_id) VALUES ($1, $2);

-- name: SetPrebuildProblem :exec
-- Records why a preset's prebuilt workspaces cannot be created; '' that they can.
UPDATE template_version_presets SET prebuild_problem = sqlc.arg(problem), prebuild_problem_at = CASE WHEN sqlc.arg(problem)::text = '' THEN NULL ELSE sqlc.arg(at)::timestamptz END
WHERE id = sqlc.arg(id) AND (prebuild_problem <> '' OR sqlc.arg(problem)::text <> '');

-- name: SetPrebuiltResult :exec
-- Records how the first build of a prebuilt workspace ended, and what a claim will make of it, or why only the claim's build can tell.
UPDATE prebuilt_workspaces SET claim_plan = sqlc.narg(claim_plan)::bytea, claim_waits = sqlc.narg(claim_waits)::text[], started_at = CASE WHEN sqlc.arg(succeeded)::boolean THEN now() END, failed_at = CASE WHEN NOT sqlc.arg(succeeded)::boolean THEN now() END
WHERE workspace_id = sqlc.arg(workspace_id) AND claimed_at IS NULL AND started_at IS NULL AND failed_at IS NULL;

-- name: TakePrebuilt :one
-- Locks the oldest prebuilt workspace of a preset that is ready for a user and has not expired. Transactions at the same time get different ones.
SELECT w.* FROM prebuilt_workspaces b JOIN workspaces w ON w.id = b.workspace_id
WHERE b.preset_id = sqlc.arg(preset_id)::uuid AND b.claimed_at IS NULL AND (sqlc.narg(created_after)::timestamptz IS NULL OR b.created_at > sqlc.narg(created_after))
	AND w.owner_id = prebuilds_owner() AND w.deleted_at IS NULL AND w.latest_version_id = sqlc.arg(version_id)::uuid
	AND w.latest_transition = 'start' AND w.latest_status = 'succeeded'
	AND NOT EXISTS (SELECT FROM workspace_agents a WHERE a.workspace_id = w.id AND a.token_hash IS NOT NULL AND a.parent_id IS NULL
		AND (agent_status(a) <> 'connected' OR a.lifecycle_state <> 'ready'))
ORDER BY b.created_at LIMIT 1 FOR UPDATE OF w SKIP LOCKED;

-- name: ClaimPrebuilt :one
-- Gives a locked prebuilt workspace to a user. Nothing of what it was shared or set to before stays.
UPDATE workspaces SET owner_id = $2, name = $3, autostart_schedule = $4, ttl_seconds = $5, automatic_updates = $6, sharing = '{}', dormant_at = NULL,
	created_at = now(), updated_at = now(), last_used_at = now()
WHERE id = $1 AND owner_id = prebuilds_owner()
RETURNING *;

-- name: SetPrebuiltClaimed :one
-- Records who claims a prebuilt workspace by the claim's build, and returns and forgets what the claim will make of it.
UPDATE prebuilt_workspaces p SET claimed_at = now(), claim_build_id = $2, claim_plan = NULL
FROM (SELECT b.workspace_id, b.claim_plan FROM prebuilt_workspaces b WHERE b.workspace_id = $1) before
WHERE p.workspace_id = before.workspace_id
RETURNING before.claim_plan;

-- name: SetBuildInstant :exec
-- Records that a claim's agents belong to their new owner before its build has begun.
UPDATE workspace_builds SET instant_claim = true WHERE id = $1;

-- name: CountPrebuilds :many
-- Counts prebuilt workspaces for metrics and for a template's page, by preset of an active version. claim_waits is of the last one that started.
SELECT t.id AS template_id, t.name AS template_name, t.deprecated <> '' AS deprecated, o.name AS organization_name, p.id AS preset_id, p.name AS preset_name, p.prebuilds,
	p.prebuild_problem, p.prebuild_problem_at, c.created, c.failed, c.claimed, c.running, c.eligible, c.failures, c.failed_at::timestamptz AS failed_at,
	(SELECT x.claim_waits FROM prebuilt_workspaces x WHERE x.preset_id = p.id AND x.started_at IS NOT NULL ORDER BY x.started_at DESC LIMIT 1) AS claim_waits
FROM templates t
JOIN organizations o ON o.id = t.organization_id
JOIN template_version_presets p ON p.template_version_id = t.active_version_id AND p.prebuilds IS NOT NULL
JOIN LATERAL (
	SELECT count(b.workspace_id) AS created, count(*) FILTER (WHERE b.failed_at IS NOT NULL) AS failed, count(*) FILTER (WHERE b.claimed_at IS NOT NULL) AS claimed,
		count(*) FILTER (WHERE live.running) AS running, count(*) FILTER (WHERE live.running AND live.ready AND (p.prebuilds_invalidated_at IS NULL OR b.created_at > p.prebuilds_invalidated_at)) AS eligible,
		count(*) FILTER (WHERE b.failed_at > sqlc.arg(since)::timestamptz AND b.failed_at > COALESCE(s.last, '-infinity')) AS failures,
		COALESCE(max(b.failed_at), 'epoch') AS failed_at
	FROM (SELECT max(x.started_at) AS last FROM prebuilt_workspaces x WHERE x.preset_id = p.id) s
	LEFT JOIN prebuilt_workspaces b ON b.preset_id = p.id
	LEFT JOIN LATERAL (
		SELECT w.latest_transition = 'start' AND w.latest_status = 'succeeded' AS running,
			NOT EXISTS (SELECT FROM workspace_agents a WHERE a.workspace_id = w.id AND a.token_hash IS NOT NULL AND a.parent_id IS NULL
				AND (agent_status(a) <> 'connected' OR a.lifecycle_state <> 'ready')) AS ready
		FROM workspaces w WHERE w.id = b.workspace_id AND w.owner_id = prebuilds_owner() AND w.deleted_at IS NULL
	) live ON true
) c ON true
WHERE t.deleted_at IS NULL AND (sqlc.narg(template_id)::uuid IS NULL OR t.id = sqlc.narg(template_id))
ORDER BY t.name, p.name;
