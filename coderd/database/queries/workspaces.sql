-- name: InsertWorkspace :one
INSERT INTO workspaces (id, organization_id, owner_id, template_id, name, autostart_schedule, ttl_seconds, automatic_updates)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
RETURNING *;

-- name: GetWorkspace :one
-- Returns a workspace, even a deleted one.
SELECT * FROM workspaces WHERE id = $1;

-- name: LockWorkspace :one
-- Locks a workspace while a build is created, so that its builds are numbered in order.
SELECT * FROM workspaces WHERE id = $1 FOR UPDATE;

-- name: GetWorkspaceByOwnerAndName :one
-- Returns the undeleted workspace of that name or, with include_deleted, the most recently deleted one.
SELECT * FROM workspaces
WHERE owner_id = $1 AND lower(name) = lower(sqlc.arg(name)::text) AND (deleted_at IS NULL OR sqlc.arg(include_deleted)::boolean)
ORDER BY deleted_at DESC NULLS FIRST LIMIT 1;

-- name: ListWorkspaceRows :many
-- Lists one page of workspaces. total counts all that match. status follows from the latest build as in workspaces.Status. The page is
-- determined from the few columns that are filtered and sorted by; all other columns are read for the page only.
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
		AND (sqlc.narg(extent_only)::uuid[] IS NULL OR w.id = ANY (sqlc.narg(extent_only)::uuid[]))
		AND (sqlc.narg(organization_id)::uuid IS NULL OR w.organization_id = sqlc.narg(organization_id))
		AND (sqlc.arg(owner_name)::text = '' OR lower(u.username) = lower(sqlc.arg(owner_name)::text))
		AND (sqlc.arg(name)::text = '' OR strpos(lower(w.name), lower(sqlc.arg(name)::text)) > 0)
		AND (sqlc.arg(template_name)::text = '' OR lower(t.name) = lower(sqlc.arg(template_name)::text))
		AND (sqlc.narg(dormant)::boolean IS NULL OR (w.dormant_at IS NOT NULL) = sqlc.narg(dormant))
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
-- Records that the workspace is used, at most once a minute.
UPDATE workspaces SET last_used_at = now() WHERE id = $1 AND last_used_at < now() - interval '1 minute';

-- name: BumpWorkspaceDeadline :execrows
-- A workspace in use lives for at least the template's activity bump longer, within its maximum. At most one write a minute; a shorter
-- bump is written when half of it has passed.
UPDATE workspace_builds b SET deadline = LEAST(now() + make_interval(secs => p.activity_bump_ms / 1000.0), b.max_deadline), bumped_at = now(), updated_at = now()
FROM workspaces w JOIN template_policies p ON p.template_id = w.template_id
WHERE b.id = $1 AND w.id = b.workspace_id AND b.transition = 'start' AND p.activity_bump_ms > 0
	AND b.deadline < now() + make_interval(secs => GREATEST(p.activity_bump_ms / 1000.0 - 60, p.activity_bump_ms / 2000.0)) AND (b.max_deadline IS NULL OR b.deadline < b.max_deadline);

-- name: FavoriteWorkspace :exec
INSERT INTO workspace_favorites (user_id, workspace_id) VALUES ($1, $2) ON CONFLICT DO NOTHING;

-- name: UnfavoriteWorkspace :exec
DELETE FROM workspace_favorites WHERE user_id = $1 AND workspace_id = $2;

-- name: MarkWorkspaceDeleted :exec
UPDATE workspaces SET deleted_at = now(), updated_at = now() WHERE id = $1 AND deleted_at IS NULL;

-- name: NotifyWorkspace :exec
-- Announces, when the transaction commits, that something about the workspace has changed.
SELECT pg_notify('workspace:' || sqlc.arg(workspace_id)::uuid::text, sqlc.arg(workspace_id)::uuid::text);

-- name: DeleteWorkspaceKeys :exec
-- Deletes the session tokens that builds of this workspace received.
DELETE FROM api_keys WHERE workspace_id = $1 AND kind = 'workspace';
