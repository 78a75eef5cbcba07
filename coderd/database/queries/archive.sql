-- name: SetTemplateVersionArchived :one
UPDATE template_versions SET archived = $2, updated_at = now() WHERE id = $1 RETURNING *;

-- name: ArchiveUnusedTemplateVersions :many
-- Archives versions of a template whose import has ended and that are neither active nor in use by a workspace. Without succeeded_too,
-- only those whose import did not succeed.
UPDATE template_versions v SET archived = true, updated_at = now()
FROM templates t, provisioner_jobs j
WHERE v.template_id = $1 AND t.id = v.template_id AND j.id = v.job_id AND NOT v.archived AND v.id <> t.active_version_id
	AND (j.status IN ('failed', 'canceled') OR sqlc.arg(succeeded_too)::boolean AND j.status = 'succeeded')
	AND NOT EXISTS (SELECT FROM workspaces w WHERE w.latest_version_id = v.id AND w.deleted_at IS NULL)
RETURNING sqlc.embed(v);
