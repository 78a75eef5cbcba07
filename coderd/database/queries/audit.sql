-- name: InsertAuditLog :exec
-- Also tells servers that stream the log, when the transaction commits.
WITH row AS (
	INSERT INTO audit_logs (id, organization_id, user_id, actor, action, resource_type, resource_id, resource_target, diff, additional_fields,
		build_reason, status_code, request_id, ip, user_agent)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)
	RETURNING id
)
SELECT pg_notify('audit', row.id::text) FROM row;

-- name: ListAuditLogs :many
-- One page, newest first. Filters that are null do not filter. before and before_id continue after a row: exports page by them.
WITH page AS (
	SELECT * FROM audit_logs l
	WHERE (sqlc.narg(ids)::uuid[] IS NULL OR l.id = ANY (sqlc.narg(ids)::uuid[]))
		AND (sqlc.narg(organization_ids)::uuid[] IS NULL OR l.organization_id = ANY (sqlc.narg(organization_ids)::uuid[]))
		AND (sqlc.narg(user_ids)::uuid[] IS NULL OR l.user_id = ANY (sqlc.narg(user_ids)::uuid[]))
		AND (sqlc.narg(action)::text IS NULL OR l.action = sqlc.narg(action))
		AND (sqlc.narg(resource_type)::text IS NULL OR l.resource_type = sqlc.narg(resource_type))
		AND (sqlc.narg(resource_id)::uuid IS NULL OR l.resource_id = sqlc.narg(resource_id))
		AND (sqlc.narg(resource_target)::text IS NULL OR lower(l.resource_target) = lower(sqlc.narg(resource_target)))
		AND (sqlc.narg(build_reason)::text IS NULL OR l.build_reason <> '' AND l.build_reason = sqlc.narg(build_reason))
		AND (sqlc.narg(request_id)::uuid IS NULL OR l.request_id = sqlc.narg(request_id))
		AND (sqlc.narg(since)::timestamptz IS NULL OR l.created_at >= sqlc.narg(since))
		AND (sqlc.narg(until)::timestamptz IS NULL OR l.created_at < sqlc.narg(until))
		AND (sqlc.narg(before)::timestamptz IS NULL OR (l.created_at, l.id) < (sqlc.narg(before)::timestamptz, sqlc.narg(before_id)::uuid))
	ORDER BY l.created_at DESC, l.id DESC LIMIT sqlc.arg(page_limit)::int OFFSET sqlc.arg(page_offset)::int
)
SELECT sqlc.embed(entry), o.name AS organization_name, o.display_name AS organization_display_name,
	u.username, u.email, u.name AS user_name, u.status AS user_status, u.login_type, u.roles, u.created_at AS user_created_at,
	u.updated_at AS user_updated_at, u.last_seen_at AS user_last_seen_at,
	coalesce(CASE entry.resource_type
		WHEN 'workspace' THEN (SELECT w.deleted_at IS NOT NULL FROM workspaces w WHERE w.id = entry.resource_id)
		WHEN 'template' THEN (SELECT t.deleted_at IS NOT NULL FROM templates t WHERE t.id = entry.resource_id)
		WHEN 'user' THEN (SELECT d.deleted_at IS NOT NULL FROM users d WHERE d.id = entry.resource_id)
		WHEN 'organization' THEN (SELECT g.deleted_at IS NOT NULL FROM organizations g WHERE g.id = entry.resource_id)
	END, false)::boolean AS is_deleted
FROM page
JOIN audit_logs entry ON entry.id = page.id
LEFT JOIN organizations o ON o.id = entry.organization_id
LEFT JOIN users u ON u.id = entry.user_id
ORDER BY entry.created_at DESC, entry.id DESC;

-- name: CountAuditLogs :one
-- How many rows match, counted up to a bound.
SELECT count(*) FROM (
	SELECT FROM audit_logs l
	WHERE (sqlc.narg(organization_ids)::uuid[] IS NULL OR l.organization_id = ANY (sqlc.narg(organization_ids)::uuid[]))
		AND (sqlc.narg(user_ids)::uuid[] IS NULL OR l.user_id = ANY (sqlc.narg(user_ids)::uuid[]))
		AND (sqlc.narg(action)::text IS NULL OR l.action = sqlc.narg(action))
		AND (sqlc.narg(resource_type)::text IS NULL OR l.resource_type = sqlc.narg(resource_type))
		AND (sqlc.narg(resource_id)::uuid IS NULL OR l.resource_id = sqlc.narg(resource_id))
		AND (sqlc.narg(resource_target)::text IS NULL OR lower(l.resource_target) = lower(sqlc.narg(resource_target)))
		AND (sqlc.narg(build_reason)::text IS NULL OR l.build_reason <> '' AND l.build_reason = sqlc.narg(build_reason))
		AND (sqlc.narg(request_id)::uuid IS NULL OR l.request_id = sqlc.narg(request_id))
		AND (sqlc.narg(since)::timestamptz IS NULL OR l.created_at >= sqlc.narg(since))
		AND (sqlc.narg(until)::timestamptz IS NULL OR l.created_at < sqlc.narg(until))
	LIMIT sqlc.arg(bound)::int
) matching;

-- name: ListUserIDs :many
-- Users who have or had a name or an email address; those who were deleted too.
SELECT id FROM users WHERE lower(username) = lower(sqlc.arg(reference)::text) OR lower(email) = lower(sqlc.arg(reference)::text);

-- name: ListNames :many
-- What the objects with these ids are called, those that were deleted too.
SELECT u.id, u.username AS name FROM users u WHERE u.id = ANY (sqlc.arg(ids)::uuid[])
UNION ALL SELECT g.id, g.name FROM groups g WHERE g.id = ANY (sqlc.arg(ids)::uuid[])
UNION ALL SELECT o.id, o.name FROM organizations o WHERE o.id = ANY (sqlc.arg(ids)::uuid[])
UNION ALL SELECT t.id, t.name FROM templates t WHERE t.id = ANY (sqlc.arg(ids)::uuid[])
UNION ALL SELECT v.id, v.name FROM template_versions v WHERE v.id = ANY (sqlc.arg(ids)::uuid[])
UNION ALL SELECT w.id, w.name FROM workspaces w WHERE w.id = ANY (sqlc.arg(ids)::uuid[]);

-- name: DeleteOldAuditLogs :execrows
DELETE FROM audit_logs WHERE id IN (
	SELECT l.id FROM audit_logs l WHERE l.created_at < sqlc.arg(before)::timestamptz ORDER BY l.created_at LIMIT sqlc.arg(max_rows)
);

-- name: GetUsername :one
-- Of a deleted user, too.
SELECT username FROM users WHERE id = $1;
