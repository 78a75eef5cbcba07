-- name: InsertWorkspace :one
INSERT INTO workspaces (id, organization_id, owner_id, template_id, name, autostart_schedule, ttl_seconds, automatic_updates)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING *;

-- name: GetWorkspace :one
-- Deleted ones too.
SELECT * FROM workspaces WHERE id = $1;

-- name: LockWorkspace :one
-- Held while a build is made: builds of one workspace are numbered one after another.
SELECT * FROM workspaces WHERE id = $1 FOR UPDATE;

-- name: GetWorkspaceByOwnerAndName :one
-- With include_deleted, the living one first, else the newest of the deleted.
SELECT * FROM workspaces
WHERE owner_id = $1 AND lower(name) = lower(sqlc.arg(name)::text) AND (deleted_at IS NULL OR sqlc.arg(include_deleted)::boolean)
ORDER BY deleted_at DESC NULLS FIRST LIMIT 1;

-- name: ListWorkspaceRows :many
-- One page of workspaces with what a list shows. total counts all that match. status follows from the latest build as in
-- workspaces.Status. The page is found in the narrow rows of what is filtered and sorted by; the rest is read for the page only.
WITH matching AS (
	SELECT w.id, lower(u.username) AS owner_key, lower(w.name) AS name_key, f.workspace_id IS NOT NULL AS favorite,
		w.latest_status = 'succeeded' AND w.latest_transition = 'start' AS running
	FROM workspaces w
	JOIN users u ON u.id = w.owner_id
	JOIN templates t ON t.id = w.template_id
	LEFT JOIN workspace_favorites f ON f.workspace_id = w.id AND f.user_id = sqlc.arg(viewer_id)
	WHERE w.latest_build_id IS NOT NULL
		AND (sqlc.narg(ids)::uuid[] IS NULL OR w.id = ANY (sqlc.narg(ids)::uuid[]))
		AND (sqlc.arg(include_deleted)::boolean OR w.deleted_at IS NULL)
		AND (sqlc.narg(owner_id)::uuid IS NULL OR w.owner_id = sqlc.narg(owner_id))
		AND (sqlc.arg(extent_all)::boolean OR w.organization_id = ANY (sqlc.arg(extent_organizations)::uuid[])
			OR w.organization_id = ANY (sqlc.arg(extent_member)::uuid[])
				AND (w.owner_id = sqlc.arg(viewer_id) OR w.sharing <> '{}' AND w.sharing ?| sqlc.arg(extent_principals)::text[]))
		AND (sqlc.narg(organization_id)::uuid IS NULL OR w.organization_id = sqlc.narg(organization_id))
		AND (sqlc.arg(owner_name)::text = '' OR lower(u.username) = lower(sqlc.arg(owner_name)::text))
		AND (sqlc.arg(name)::text = '' OR strpos(lower(w.name), lower(sqlc.arg(name)::text)) > 0)
		AND (sqlc.arg(template_name)::text = '' OR lower(t.name) = lower(sqlc.arg(template_name)::text))
		AND (sqlc.narg(outdated)::boolean IS NULL OR (w.latest_version_id <> t.active_version_id) = sqlc.narg(outdated))
		AND (sqlc.arg(status)::text = '' OR sqlc.arg(status)::text = CASE w.latest_status
			WHEN 'running' THEN CASE w.latest_transition WHEN 'start' THEN 'starting' WHEN 'stop' THEN 'stopping' ELSE 'deleting' END
			WHEN 'succeeded' THEN CASE w.latest_transition WHEN 'start' THEN 'running' WHEN 'stop' THEN 'stopped' ELSE 'deleted' END
			ELSE w.latest_status END)
), page AS (
	SELECT id, favorite FROM matching ORDER BY favorite DESC, running DESC, owner_key, name_key, id
	LIMIT NULLIF(sqlc.arg(page_limit)::int, 0) OFFSET sqlc.arg(page_offset)::int
)
SELECT sqlc.embed(w), u.username AS owner_name, o.name AS organization_name, t.name AS template_name, t.display_name AS template_display_name,
	t.icon AS template_icon, t.active_version_id AS template_active_version_id, t.require_active_version AS template_require_active_version,
	w.latest_build_id::uuid AS latest_build_id, page.favorite::boolean AS favorite, (SELECT count(*) FROM matching) AS total
FROM page
JOIN workspaces w ON w.id = page.id
JOIN users u ON u.id = w.owner_id
JOIN organizations o ON o.id = w.organization_id
JOIN templates t ON t.id = w.template_id
ORDER BY page.favorite DESC, (w.latest_status = 'succeeded' AND w.latest_transition = 'start') DESC, lower(u.username), lower(w.name), w.id;

-- name: RenameWorkspace :exec
UPDATE workspaces SET name = $2, updated_at = now() WHERE id = $1;

-- name: UpdateWorkspaceAutostart :exec
UPDATE workspaces SET autostart_schedule = $2, updated_at = now() WHERE id = $1;

-- name: UpdateWorkspaceTTL :exec
UPDATE workspaces SET ttl_seconds = $2, updated_at = now() WHERE id = $1;

-- name: UpdateWorkspaceAutomaticUpdates :exec
UPDATE workspaces SET automatic_updates = $2, updated_at = now() WHERE id = $1;

-- name: TouchWorkspace :execrows
-- A use of the workspace; at most one write a minute.
UPDATE workspaces SET last_used_at = now() WHERE id = $1 AND last_used_at < now() - interval '1 minute';

-- name: BumpWorkspaceDeadline :execrows
-- A workspace in use lives for at least another hour, within the bound it was given.
UPDATE workspace_builds SET deadline = LEAST(now() + interval '1 hour', max_deadline), updated_at = now()
WHERE id = $1 AND transition = 'start' AND deadline < now() + interval '59 minutes' AND (max_deadline IS NULL OR deadline < max_deadline);

-- name: FavoriteWorkspace :exec
INSERT INTO workspace_favorites (user_id, workspace_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: UnfavoriteWorkspace :exec
DELETE FROM workspace_favorites WHERE user_id = $1 AND workspace_id = $2;

-- name: MarkWorkspaceDeleted :exec
UPDATE workspaces SET deleted_at = now(), updated_at = now() WHERE id = $1 AND deleted_at IS NULL;

-- name: NotifyWorkspace :exec
-- Something that a page about the workspace shows has changed. Delivered when the transaction commits.
SELECT pg_notify('workspace:' || sqlc.arg(workspace_id)::uuid::text, sqlc.arg(workspace_id)::uuid::text);

-- name: DeleteWorkspaceKeys :exec
-- The session tokens that builds of this workspace were given.
DELETE FROM api_keys WHERE workspace_id = $1 AND kind = 'workspace';

-- name: ListOverdueWorkspaces :many
-- Workspaces to stop, a batch of them: running ones whose time is over, and ones whose automatic stop failed. One that could not be
-- stopped before comes again at its time (PostponeAutostop), so that a batch of such does not keep the others running.
(SELECT id, latest_deadline AS since FROM workspaces
	WHERE deleted_at IS NULL AND latest_transition = 'start' AND latest_status = 'succeeded' AND latest_deadline <= sqlc.arg(at)::timestamptz
		AND (autostop_after IS NULL OR autostop_after <= sqlc.arg(at)::timestamptz)
	ORDER BY latest_deadline LIMIT 100)
UNION ALL
(SELECT id, autostop_after AS since FROM workspaces
	WHERE deleted_at IS NULL AND latest_transition = 'stop' AND latest_status = 'failed' AND latest_reason = 'autostop'
		AND autostop_after <= sqlc.arg(at)::timestamptz
	ORDER BY autostop_after LIMIT 100);

-- name: PostponeAutostop :one
-- An automatic stop was tried, or could not be: the next try of this workspace, should it need one, is later each time.
UPDATE workspaces SET autostop_tries = autostop_tries + 1,
	autostop_after = sqlc.arg(at)::timestamptz + LEAST(make_interval(mins => 1) * power(2, LEAST(autostop_tries, 10)), make_interval(hours => 6))
WHERE id = $1 RETURNING autostop_tries, autostop_after::timestamptz AS autostop_after;

-- name: ListAutostartWorkspaces :many
-- Stopped workspaces with a schedule, and since when they are stopped.
SELECT w.id, w.owner_id, w.autostart_schedule, w.latest_ended_at AS completed_at FROM workspaces w
JOIN users u ON u.id = w.owner_id
WHERE w.deleted_at IS NULL AND w.autostart_schedule IS NOT NULL AND w.latest_transition = 'stop' AND w.latest_status = 'succeeded'
	AND u.status <> 'suspended' AND u.deleted_at IS NULL;
