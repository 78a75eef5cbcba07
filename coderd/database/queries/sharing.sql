-- name: AnnounceUnsharedWorkspace :exec
-- Announces to the pages of users and groups who had access to a workspace, and have none now, that it has changed. The workspace's own
-- triggers announce it to those who have access.
SELECT announce('workspace', w.id, NULL, w.organization_id, gone.sharing)
FROM workspaces w, LATERAL (
	SELECT jsonb_object_agg(f.id, 'use') AS sharing FROM unnest(sqlc.arg(former)::uuid[]) AS f (id) WHERE NOT w.sharing ? f.id::text
) AS gone
WHERE w.id = sqlc.arg(workspace_id) AND gone.sharing IS NOT NULL;

-- name: AnnounceUnsharedTemplate :exec
-- Does for a template what AnnounceUnsharedWorkspace does for a workspace.
SELECT announce('template', t.id, NULL, t.organization_id, gone.sharing)
FROM templates t, LATERAL (
	SELECT jsonb_object_agg(f.id, 'use') AS sharing FROM unnest(sqlc.arg(former)::uuid[]) AS f (id) WHERE NOT t.sharing ? f.id::text
) AS gone
WHERE t.id = sqlc.arg(template_id) AND gone.sharing IS NOT NULL;

-- name: AnnounceWorkspace :exec
-- Announces to pages that something about a workspace has changed that its own row does not hold.
SELECT notify_event('workspace', w.id, w.owner_id) FROM workspaces w WHERE w.id = $1;
