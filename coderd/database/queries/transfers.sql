-- name: TransferWorkspace :one
-- Gives a stopped workspace to another user. Nothing starts or opens it before they do: what its former owner scheduled and shared ends.
UPDATE workspaces SET owner_id = $2, name = $3, autostart_schedule = NULL, automatic_updates = 'never', sharing = '{}', last_used_at = now(), updated_at = now()
WHERE id = $1 RETURNING *;

-- name: DeletePortShares :exec
-- Ends the sharing of all ports of a workspace; a trigger notifies every server.
DELETE FROM workspace_port_shares WHERE workspace_id = $1;

-- name: DeleteFavorites :exec
-- Removes a workspace from the favorites of everyone but its owner.
DELETE FROM workspace_favorites f USING workspaces w WHERE w.id = $1 AND f.workspace_id = w.id AND f.user_id <> w.owner_id;

-- name: ForgetMaskedParameters :exec
-- Deletes the values of a workspace's parameters that may be masked, in all its builds: only the user who gave them may read them.
DELETE FROM workspace_build_parameters p USING workspace_builds b
WHERE b.workspace_id = $1 AND p.workspace_build_id = b.id AND NOT EXISTS (SELECT FROM template_version_parameters d
	WHERE d.template_version_id = b.template_version_id AND d.name = p.name AND NOT COALESCE(d.definition->'conditional' = 'true', false)
		AND COALESCE(d.definition->>'styling', '') !~* 'mask|\\');

-- name: AnnounceFormerOwner :exec
-- Announces to the pages of a workspace's former owner that it has changed, and has every server end what they opened with it.
SELECT announce('workspace', sqlc.arg(workspace_id)::uuid, sqlc.arg(former)::uuid, NULL, '{}'), pg_notify('users_revoked', sqlc.arg(former)::uuid::text);
