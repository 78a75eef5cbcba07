-- Events of workspaces, builds, agents, users and templates, and the webhooks that get them (coderd/webhooks). Triggers write the events.

-- name: LockLifecycle :exec
-- Lets one transaction at a time number events and add deliveries, so that the order of the numbers is the order in which others see them.
SELECT pg_advisory_xact_lock(7358099);

-- name: NumberLifecycleEvents :many
-- Numbers events that are visible, in the order in which they were written.
UPDATE lifecycle_events e SET sequence = n.sequence
FROM (SELECT o.id, nextval('lifecycle_events_sequence') AS sequence
	FROM (SELECT id FROM lifecycle_events WHERE sequence IS NULL ORDER BY id LIMIT sqlc.arg(max_rows)) AS o) AS n
WHERE e.id = n.id RETURNING e.id;

-- name: AddWebhookDeliveries :exec
-- Adds a delivery of each event to each enabled webhook that wants it.
INSERT INTO webhook_deliveries (webhook_id, event_id, subject)
SELECT w.id, e.id, e.subject FROM lifecycle_events e JOIN webhooks w ON w.disabled_at IS NULL
	AND (w.events && ARRAY['*', e.type, e.kind || '.*'])
WHERE e.id = ANY (sqlc.arg(ids)::bigint[]) AND e.kind <> 'webhook' ORDER BY e.sequence;

-- name: NotifyLifecycleNumbered :exec
-- Tells every server that numbered events, or deliveries, were added.
SELECT pg_notify('lifecycle_numbered', '');

-- name: ListLifecycleEvents :many
-- Lists events after a number, with who may see them now. Deleted workspaces and templates are rows, too.
SELECT e.sequence::bigint AS sequence, e.message, e.type, e.kind, e.subject, e.data, e.created_at, coalesce(w.owner_id, e.owner_id, '00000000-0000-0000-0000-000000000000')::uuid AS owner_id,
	coalesce(w.organization_id, t.organization_id, e.organization_id, '00000000-0000-0000-0000-000000000000')::uuid AS organization_id,
	coalesce(ARRAY(SELECT k::uuid FROM jsonb_object_keys(coalesce(w.sharing, t.sharing, '{}')) AS k), '{}')::uuid[] AS shared
FROM lifecycle_events e
LEFT JOIN workspaces w ON e.kind IN ('workspace', 'build', 'agent') AND w.id = e.subject
LEFT JOIN templates t ON e.kind = 'template' AND t.id = e.subject
WHERE e.sequence > sqlc.arg(after)::bigint AND e.kind <> 'webhook' ORDER BY e.sequence LIMIT sqlc.arg(max_rows);

-- name: GetLifecycleBounds :one
-- Returns the numbers of the oldest event and of the newest one; 0 for none.
SELECT coalesce(min(sequence), 0)::bigint AS oldest, coalesce(max(sequence), 0)::bigint AS newest FROM lifecycle_events;

-- name: DeleteOldLifecycleEvents :execrows
-- Deletes events before a time with their deliveries, except those that wait for one.
DELETE FROM lifecycle_events WHERE id IN (
	SELECT e.id FROM lifecycle_events e
	WHERE e.created_at < sqlc.arg(before)::timestamptz AND e.sequence IS NOT NULL
		AND NOT EXISTS (SELECT FROM webhook_deliveries d JOIN webhooks w ON w.id = d.webhook_id WHERE d.event_id = e.id AND d.status = 'pending' AND w.disabled_at IS NULL)
	ORDER BY e.created_at LIMIT sqlc.arg(max_rows)
);

-- name: ListWebhooks :many
SELECT * FROM webhooks ORDER BY lower(name);

-- name: GetWebhook :one
SELECT * FROM webhooks WHERE id = $1;

-- name: LockWebhook :one
SELECT * FROM webhooks WHERE id = $1 FOR UPDATE;

-- name: InsertWebhook :one
INSERT INTO webhooks (id, name, origin, sealed, events, format) VALUES ($1, $2, $3, $4, $5, $6) RETURNING *;

-- name: UpdateWebhook :one
UPDATE webhooks SET name = $2, origin = $3, sealed = $4, events = $5, format = $6, disabled_at = $7, disabled_reason = $8, failing_since = $9
WHERE id = $1 RETURNING *;

-- name: DeleteWebhook :execrows
DELETE FROM webhooks WHERE id = $1;

-- name: ListDueWebhooks :many
-- Lists enabled webhooks with a delivery that is due.
SELECT w.* FROM webhooks w WHERE w.disabled_at IS NULL
	AND EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.status = 'pending' AND d.next_at <= now());

-- name: LeaseWebhookDeliveries :many
-- Leases deliveries of a webhook that are due. Of a subject's deliveries, only the first that is pending is due.
WITH leased AS (
	UPDATE webhook_deliveries n SET attempts = attempts + 1, lease = sqlc.arg(lease)::uuid, next_at = now() + make_interval(secs => sqlc.arg(seconds)::float8)
	WHERE n.id IN (
		SELECT d.id FROM webhook_deliveries d
		WHERE d.webhook_id = sqlc.arg(webhook_id) AND d.status = 'pending' AND d.next_at <= now()
			AND EXISTS (SELECT FROM webhooks w WHERE w.id = d.webhook_id AND w.disabled_at IS NULL)
			AND NOT EXISTS (SELECT FROM webhook_deliveries f WHERE f.webhook_id = d.webhook_id AND f.subject = d.subject AND f.status = 'pending' AND f.id < d.id)
		ORDER BY d.id LIMIT sqlc.arg(max_rows) FOR UPDATE SKIP LOCKED
	)
	RETURNING n.*
)
SELECT c.id, c.attempts, c.replay, e.message, coalesce(e.sequence, 0)::bigint AS sequence, e.type, e.data, e.created_at
FROM leased c JOIN lifecycle_events e ON e.id = c.event_id ORDER BY c.id;

-- name: FinishWebhookDelivery :execrows
-- Stores how a delivery ended.
UPDATE webhook_deliveries SET status = sqlc.arg(status), response_status = sqlc.arg(response_status), excerpt = sqlc.arg(excerpt), error = sqlc.arg(error), finished_at = now()
WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: RetryWebhookDelivery :execrows
-- Stores when to try again, and why.
UPDATE webhook_deliveries SET response_status = sqlc.arg(response_status), excerpt = sqlc.arg(excerpt), error = sqlc.arg(error),
	next_at = now() + make_interval(secs => sqlc.arg(seconds)::float8)
WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: ReleaseWebhookDelivery :execrows
-- Gives a delivery back that was broken off because the server stops. It does not count as an attempt.
UPDATE webhook_deliveries SET attempts = attempts - 1, next_at = now() WHERE id = sqlc.arg(id) AND lease = sqlc.arg(lease)::uuid AND status = 'pending';

-- name: WebhookSucceeded :exec
UPDATE webhooks SET failing_since = NULL WHERE id = $1 AND failing_since IS NOT NULL;

-- name: WebhookFailed :exec
UPDATE webhooks SET failing_since = now() WHERE id = $1 AND failing_since IS NULL;

-- name: DisableWebhook :execrows
-- Disables a webhook that has failed for some time, at least.
UPDATE webhooks SET disabled_at = now(), disabled_reason = sqlc.arg(reason)
WHERE id = $1 AND disabled_at IS NULL AND failing_since <= now() - make_interval(secs => sqlc.arg(seconds)::float8);

-- name: ListWebhookDeliveries :many
-- Lists deliveries of a webhook, newest first, before one.
SELECT d.*, e.message, e.type, coalesce(e.sequence, 0)::bigint AS sequence FROM webhook_deliveries d JOIN lifecycle_events e ON e.id = d.event_id
WHERE d.webhook_id = sqlc.arg(webhook_id) AND (sqlc.arg(before)::bigint = 0 OR d.id < sqlc.arg(before)::bigint) ORDER BY d.id DESC LIMIT sqlc.arg(max_rows);

-- name: ReplayWebhookDelivery :execrows
-- Adds a delivery of an event that was delivered before, or failed.
INSERT INTO webhook_deliveries (webhook_id, event_id, subject, replay)
SELECT d.webhook_id, d.event_id, d.subject, true FROM webhook_deliveries d WHERE d.id = sqlc.arg(id) AND d.webhook_id = sqlc.arg(webhook_id);

-- name: ReplayWebhookEvents :execrows
-- Adds deliveries of the events of a time that a webhook wants, except those that are pending.
INSERT INTO webhook_deliveries (webhook_id, event_id, subject, replay)
SELECT w.id, e.id, e.subject, true FROM webhooks w JOIN lifecycle_events e ON w.events && ARRAY['*', e.type, e.kind || '.*']
WHERE w.id = sqlc.arg(webhook_id) AND e.kind <> 'webhook' AND e.sequence IS NOT NULL
	AND e.created_at >= sqlc.arg(since)::timestamptz AND e.created_at < sqlc.arg(until)::timestamptz
	AND NOT EXISTS (SELECT FROM webhook_deliveries d WHERE d.webhook_id = w.id AND d.event_id = e.id AND d.status = 'pending')
ORDER BY e.sequence LIMIT sqlc.arg(max_rows);

-- name: InsertTestEvent :one
INSERT INTO lifecycle_events (sequence, type, kind, subject, data)
VALUES (nextval('lifecycle_events_sequence'), 'webhook.test', 'webhook', sqlc.arg(webhook_id)::uuid, sqlc.arg(data)) RETURNING id;

-- name: InsertTestDelivery :exec
INSERT INTO webhook_deliveries (webhook_id, event_id, subject) VALUES (sqlc.arg(webhook_id), sqlc.arg(event_id), gen_random_uuid());

-- name: CountWebhooks :one
SELECT count(*) FROM webhooks;
