-- name: GetTemplatePolicy :one
SELECT * FROM template_policies WHERE template_id = $1;

-- name: UpdateTemplatePolicy :exec
-- bounds_changed_at moves only if the bounds of running workspaces do.
UPDATE template_policies SET max_ttl_ms = $2, activity_bump_ms = $3, notify_ms = $4, failure_ttl_ms = $5, dormant_ms = $6, delete_ms = $7,
	autostart_days = $8, autostop_days = $9, autostop_weeks = $10, allow_autostart = $11, allow_autostop = $12, allow_cancel = $13, allow_replacing = $14,
	bounds_changed_at = CASE WHEN max_ttl_ms = $2 AND autostop_days = $9 AND autostop_weeks = $10 THEN bounds_changed_at ELSE now() END
WHERE template_id = $1;

-- name: TouchTemplateWorkspaces :exec
-- All of a template's workspaces count as used now.
UPDATE workspaces SET last_used_at = now() WHERE id IN (
	SELECT w.id FROM workspaces w WHERE w.template_id = $1 AND w.deleted_at IS NULL ORDER BY w.id FOR UPDATE);

-- name: RestartTemplateDormancy :exec
-- All dormant workspaces of a template count as dormant since now.
UPDATE workspaces SET dormant_at = now() WHERE id IN (
	SELECT w.id FROM workspaces w WHERE w.template_id = $1 AND w.deleted_at IS NULL AND w.dormant_at IS NOT NULL ORDER BY w.id FOR UPDATE);

-- name: GetQuietHours :one
SELECT * FROM user_quiet_hours WHERE user_id = $1;

-- name: SetQuietHours :exec
-- An empty schedule returns to the deployment's; the row says when that was.
INSERT INTO user_quiet_hours (user_id, schedule) VALUES ($1, $2)
ON CONFLICT (user_id) DO UPDATE SET schedule = EXCLUDED.schedule, changed_at = now();

-- name: ListPolicyFacts :many
-- Everything that policy depends on, for workspaces with their latest build. bounds_changed_at: when the rules that bound a running
-- workspace last changed. A subquery unnests the ids: PostgreSQL would plan anew for each array, which costs more than the query.
SELECT w.id, w.name, w.owner_id, w.template_id, w.autostart_schedule, w.ttl_seconds, w.last_used_at, w.dormant_at, w.deleted_at, t.default_ttl_seconds,
	sqlc.embed(p), COALESCE(h.schedule, '')::text AS quiet_hours, GREATEST(p.bounds_changed_at, h.changed_at)::timestamptz AS bounds_changed_at,
	(u.status = 'suspended' OR u.deleted_at IS NOT NULL)::boolean AS owner_suspended,
	b.id AS build_id, b.transition, b.reason, b.deadline, b.max_deadline, b.explanation, b.ttl_ms, b.ttl_from, b.max_from, b.bounded_at, b.extensions, b.bumped_at,
	b.extended_at, b.starts_since,
	w.latest_status, w.latest_ended_at, COALESCE(q.tries, 0)::int AS tries, q.retry_at
FROM workspaces w
JOIN templates t ON t.id = w.template_id
JOIN template_policies p ON p.template_id = w.template_id
JOIN users u ON u.id = w.owner_id
JOIN workspace_builds b ON b.id = w.latest_build_id
LEFT JOIN user_quiet_hours h ON h.user_id = w.owner_id
LEFT JOIN workspace_policy q ON q.workspace_id = w.id
WHERE w.id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[])));

-- name: ListPolicyDue :many
-- Workspaces to look at, those that wait longest first. Workspaces without a build have nothing to decide about, and the rules of templates and
-- owners do not apply to prebuilt workspaces.
SELECT q.workspace_id, w.owner_id FROM workspace_policy q JOIN workspaces w ON w.id = q.workspace_id
WHERE q.look_at <= sqlc.arg(at)::timestamptz AND w.latest_build_id IS NOT NULL AND w.deleted_at IS NULL AND w.owner_id <> prebuilds_owner()
ORDER BY q.look_at, q.workspace_id LIMIT sqlc.arg(max_rows);

-- name: LockDuePolicy :one
-- Locks a workspace that is still due, and returns no row if another server has it.
SELECT w.* FROM workspaces w JOIN workspace_policy q ON q.workspace_id = w.id
WHERE w.id = sqlc.arg(id) AND q.look_at <= sqlc.arg(at)::timestamptz AND w.deleted_at IS NULL AND w.owner_id <> prebuilds_owner()
FOR UPDATE OF w SKIP LOCKED;

-- name: SetPolicyLook :exec
UPDATE workspace_policy SET look_at = sqlc.arg(look_at)::timestamptz WHERE workspace_id = $1;

-- name: PostponePolicy :one
-- An automatic build was made, or could not be: the next one, should it be needed, comes later each time.
UPDATE workspace_policy SET tries = CASE WHEN retry_at < sqlc.arg(at)::timestamptz - interval '12 hours' THEN 1 ELSE tries + 1 END,
	retry_at = sqlc.arg(at)::timestamptz + LEAST(make_interval(mins => 1) * power(2, CASE WHEN retry_at < sqlc.arg(at)::timestamptz - interval '12 hours' THEN 0 ELSE LEAST(tries, 10) END), make_interval(hours => 6))
WHERE workspace_id = $1 RETURNING tries, retry_at::timestamptz AS retry_at;

-- name: SetDormant :exec
-- Waking a workspace counts as use.
UPDATE workspaces SET dormant_at = sqlc.narg(dormant_at)::timestamptz, updated_at = now(),
	last_used_at = CASE WHEN sqlc.narg(dormant_at)::timestamptz IS NULL THEN now() ELSE last_used_at END
WHERE id = $1;

-- name: SetBuildBounds :exec
UPDATE workspace_builds SET deadline = $2, max_deadline = $3, ttl_ms = $4, ttl_from = $5, max_from = $6, bounded_at = $7, updated_at = now() WHERE id = $1;

-- name: ExtendBuild :exec
UPDATE workspace_builds SET deadline = $2, extensions = extensions + 1, extended_at = $3, updated_at = now() WHERE id = $1;

-- name: ExplainBuild :exec
UPDATE workspace_builds SET explanation = $2, starts_since = $3 WHERE id = $1;

-- name: TouchWorkspaceNow :exec
-- A person made a build.
UPDATE workspaces SET last_used_at = now() WHERE id = $1;

-- name: NoteAnnouncement :execrows
-- Records an announcement; no row if this one was made before.
INSERT INTO workspace_announcements (workspace_id, event, due_at) VALUES ($1, $2, $3)
ON CONFLICT (workspace_id, event) DO UPDATE SET due_at = EXCLUDED.due_at WHERE workspace_announcements.due_at <> EXCLUDED.due_at;

-- name: GetJobCancelable :one
-- Whether the template lets users cancel the build that a job runs; true for other jobs.
SELECT COALESCE((SELECT p.allow_cancel FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id
	JOIN template_policies p ON p.template_id = w.template_id WHERE b.job_id = $1), true)::boolean;
