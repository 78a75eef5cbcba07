-- name: RecordNotification :execrows
-- Adds a message for each recipient and method to the outbox. Recipients are the users with one of the ids, with one of the roles of the
-- deployment or with one of the roles in the organization, except those who disabled the event, or for an optional one have not enabled
-- it. 'external' means the event's own method,
-- or the default one. Service accounts have no mail.
INSERT INTO notification_messages (id, template_id, user_id, method, labels, targets, dedupe)
SELECT gen_random_uuid(), sqlc.arg(template_id)::uuid, u.id, m.method, sqlc.arg(labels)::jsonb, sqlc.arg(targets)::uuid[],
	CASE WHEN sqlc.arg(dedupe)::text <> '' THEN u.id || ' ' || m.method || ' ' || sqlc.arg(dedupe)::text END
FROM users u CROSS JOIN (
	SELECT CASE WHEN x = 'external' THEN coalesce(
			(SELECT t.method FROM notification_methods t WHERE t.template_id = sqlc.arg(template_id)::uuid AND t.method = ANY (sqlc.arg(available)::text[])),
			sqlc.arg(external)::text
		) ELSE x END AS method
	FROM unnest(sqlc.arg(methods)::text[]) AS x
) AS m
WHERE m.method <> '' AND u.deleted_at IS NULL AND NOT (m.method = 'smtp' AND u.is_service_account) AND (u.status <> 'suspended' OR sqlc.arg(suspended)::boolean)
	AND (u.id = ANY (sqlc.arg(users)::uuid[]) OR u.roles && sqlc.arg(roles)::text[] OR EXISTS (
		SELECT FROM organization_members o WHERE o.user_id = u.id AND o.organization_id = sqlc.arg(organization_id)::uuid
			AND o.roles && sqlc.arg(organization_roles)::text[]
	))
	AND NOT u.id = ANY (sqlc.arg(excluded)::uuid[])
	AND NOT EXISTS (SELECT FROM notification_preferences p WHERE p.user_id = u.id AND p.template_id = sqlc.arg(template_id)::uuid AND p.disabled)
	AND (NOT sqlc.arg(optional)::boolean OR EXISTS (
		SELECT FROM notification_preferences p WHERE p.user_id = u.id AND p.template_id = sqlc.arg(template_id)::uuid AND NOT p.disabled
	))
ON CONFLICT (dedupe) DO NOTHING;

-- name: LeaseNotifications :many
-- Leases messages that are due, unless notifications are paused.
WITH leased AS (
	UPDATE notification_messages n SET attempts = attempts + 1, lease = sqlc.arg(lease)::uuid, next_at = now() + make_interval(secs => sqlc.arg(seconds)::float8)
	WHERE n.id IN (
		SELECT d.id FROM notification_messages d
		WHERE d.status = 'pending' AND d.method = sqlc.arg(method) AND d.next_at <= now()
			AND NOT EXISTS (SELECT FROM settings s WHERE s.key = 'notifications_paused')
		ORDER BY d.next_at LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED
	)
	RETURNING n.*
)
SELECT c.id, c.template_id, c.user_id, c.method, c.labels, c.targets, c.attempts, c.created_at, u.email, u.username, u.name, u.deleted_at
FROM leased c JOIN users u ON u.id = c.user_id
ORDER BY c.created_at, c.id;

-- name: FinishNotification :execrows
-- Stores that a message was delivered or given up.
UPDATE notification_messages SET status = sqlc.arg(status), error = sqlc.arg(error), finished_at = now()
WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: RetryNotification :execrows
-- Stores when to try again, and why.
UPDATE notification_messages SET error = sqlc.arg(error), next_at = now() + make_interval(secs => sqlc.arg(seconds)::float8)
WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: ReleaseNotification :execrows
-- Gives a message back that was not sent because the server stops. It does not count as an attempt.
UPDATE notification_messages SET attempts = attempts - 1, next_at = now()
WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: InsertInboxNotification :exec
INSERT INTO inbox_notifications (id, user_id, template_id, targets, title, content, content_plain, icon, actions)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (id) DO NOTHING;

-- name: ListInbox :many
-- Lists a user's inbox, newest first.
SELECT * FROM inbox_notifications n
WHERE n.user_id = sqlc.arg(user_id)
	AND (sqlc.arg(read_status)::text = 'all' OR (n.read_at IS NOT NULL) = (sqlc.arg(read_status)::text = 'read'))
	AND (cardinality(sqlc.arg(templates)::uuid[]) = 0 OR n.template_id = ANY (sqlc.arg(templates)::uuid[]))
	AND n.targets @> sqlc.arg(targets)::uuid[]
	AND (sqlc.narg(before)::bigint IS NULL OR n.sequence < sqlc.narg(before))
ORDER BY n.sequence DESC LIMIT sqlc.arg(max_rows);

-- name: ListInboxAfter :many
-- Lists what came into a user's inbox after a notification, oldest first.
SELECT * FROM inbox_notifications n
WHERE n.user_id = sqlc.arg(user_id)
	AND (sqlc.arg(read_status)::text = 'all' OR (n.read_at IS NOT NULL) = (sqlc.arg(read_status)::text = 'read'))
	AND (cardinality(sqlc.arg(templates)::uuid[]) = 0 OR n.template_id = ANY (sqlc.arg(templates)::uuid[]))
	AND n.targets @> sqlc.arg(targets)::uuid[]
	AND n.sequence > sqlc.arg(after)::bigint
ORDER BY n.sequence LIMIT sqlc.arg(max_rows);

-- name: LockInboxes :exec
-- Lets one transaction at a time add to inboxes, so that the order of their numbers is the order in which readers see them.
SELECT pg_advisory_xact_lock(7358029);

-- name: GetInboxNotification :one
SELECT * FROM inbox_notifications WHERE id = $1 AND user_id = $2;

-- name: GetInboxState :one
-- Returns the number of unread notifications, and the number of the newest one.
SELECT count(*) FILTER (WHERE read_at IS NULL) AS unread, coalesce(max(sequence), 0)::bigint AS newest
FROM inbox_notifications WHERE user_id = $1;

-- name: SetInboxRead :one
-- Marks a notification as read or unread.
UPDATE inbox_notifications SET read_at = CASE WHEN sqlc.arg(is_read)::boolean THEN coalesce(read_at, now()) END
WHERE id = sqlc.arg(id) AND user_id = sqlc.arg(user_id) RETURNING *;

-- name: SetInboxAllRead :execrows
UPDATE inbox_notifications SET read_at = now() WHERE user_id = $1 AND read_at IS NULL;

-- name: AreNotificationsPaused :one
SELECT EXISTS (SELECT FROM settings WHERE key = 'notifications_paused');

-- name: PauseNotifications :execrows
INSERT INTO settings (key, value) VALUES ('notifications_paused', 'true') ON CONFLICT (key) DO NOTHING;

-- name: ResumeNotifications :execrows
-- Resumes, and wakes the servers.
WITH resumed AS (DELETE FROM settings WHERE key = 'notifications_paused' RETURNING key)
SELECT pg_notify('notifications', 'resumed') FROM resumed;

-- name: ListNotificationMethods :many
SELECT * FROM notification_methods;

-- name: LockNotificationMethod :one
-- Reads an event's own method, and locks it if there is one.
SELECT method FROM notification_methods WHERE template_id = $1 FOR UPDATE;

-- name: SetNotificationMethod :exec
INSERT INTO notification_methods (template_id, method) VALUES ($1, $2)
ON CONFLICT (template_id) DO UPDATE SET method = excluded.method, updated_at = now();

-- name: DeleteNotificationMethod :exec
DELETE FROM notification_methods WHERE template_id = $1;

-- name: ListNotificationPreferences :many
SELECT * FROM notification_preferences WHERE user_id = $1 ORDER BY template_id;

-- name: SetNotificationPreference :exec
INSERT INTO notification_preferences (user_id, template_id, disabled) VALUES ($1, $2, $3)
ON CONFLICT (user_id, template_id) DO UPDATE SET disabled = excluded.disabled, updated_at = now()
WHERE notification_preferences.disabled <> excluded.disabled;

-- name: DeleteOldNotifications :execrows
DELETE FROM notification_messages WHERE id IN (
	SELECT id FROM notification_messages WHERE status <> 'pending' AND finished_at < sqlc.arg(before)::timestamptz LIMIT sqlc.arg(max_rows)
);

-- name: DeleteOldInbox :execrows
-- Removes what was read a while ago.
DELETE FROM inbox_notifications WHERE id IN (
	SELECT id FROM inbox_notifications WHERE read_at < sqlc.arg(before)::timestamptz LIMIT sqlc.arg(max_rows)
);

-- name: ListTemplateWorkspaceOwners :many
-- Returns the users who have workspaces of a template.
SELECT DISTINCT owner_id FROM workspaces WHERE template_id = $1 AND deleted_at IS NULL;

-- name: ListFailedBuilds :many
-- Counts the builds of each template's workspaces that ended in a span of time, and those that failed, by version and workspace. Templates
-- without a failure are left out.
SELECT t.id AS template_id, t.organization_id, t.name AS template_name, v.name AS version_name, u.username AS owner_name, w.name AS workspace_name,
	count(*) FILTER (WHERE j.status = 'failed') AS failed, count(*) AS total
FROM provisioner_jobs j
JOIN workspace_builds b ON b.job_id = j.id
JOIN workspaces w ON w.id = b.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN templates t ON t.id = w.template_id
JOIN template_versions v ON v.id = b.template_version_id
WHERE j.kind = 'workspace_build' AND j.status IN ('succeeded', 'failed') AND j.completed_at >= sqlc.arg(since)::timestamptz AND j.completed_at < sqlc.arg(until)::timestamptz
	AND t.deleted_at IS NULL
	AND EXISTS (
		SELECT FROM provisioner_jobs fj
		JOIN workspace_builds fb ON fb.job_id = fj.id
		JOIN workspaces fw ON fw.id = fb.workspace_id
		WHERE fw.template_id = t.id AND fj.status = 'failed' AND fj.completed_at >= sqlc.arg(since)::timestamptz AND fj.completed_at < sqlc.arg(until)::timestamptz
	)
GROUP BY t.id, v.id, u.id, w.id
ORDER BY t.name, t.id, v.created_at, u.username, w.name;

-- name: GetWorkspaceNews :one
-- Returns what texts about a new workspace name.
SELECT w.name, w.template_id, w.organization_id, t.name AS template_name, v.name AS version_name, u.username AS owner_name
FROM workspaces w
JOIN templates t ON t.id = w.template_id
JOIN users u ON u.id = w.owner_id
JOIN workspace_builds b ON b.workspace_id = w.id
JOIN template_versions v ON v.id = b.template_version_id
WHERE w.id = $1
ORDER BY b.build_number DESC LIMIT 1;

-- name: GetBuildNews :one
-- Returns what texts about the end of a build name, and whether it changed the version.
SELECT b.explanation, b.build_number, v.name AS version_name, t.name AS template_name, ou.username AS owner_name, iu.username AS initiator_name,
	coalesce((SELECT p.template_version_id <> b.template_version_id FROM workspace_builds p
		WHERE p.workspace_id = b.workspace_id AND p.build_number < b.build_number ORDER BY p.build_number DESC LIMIT 1), false)::boolean AS updated
FROM workspace_builds b
JOIN template_versions v ON v.id = b.template_version_id
JOIN workspaces w ON w.id = b.workspace_id
JOIN templates t ON t.id = w.template_id
JOIN users ou ON ou.id = w.owner_id
JOIN users iu ON iu.id = b.initiator_id
WHERE b.id = $1;
