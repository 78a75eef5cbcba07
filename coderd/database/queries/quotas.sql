-- name: LockQuota :exec
-- Serializes the counting of an owner's builds in an organization, on all servers, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('quota ' || sqlc.arg(organization_id)::uuid::text || ' ' || sqlc.arg(owner_id)::uuid::text, 0));

-- name: HasQuotas :one
-- Reports whether a group of the organization has an allowance. Without one, its members' workspaces may cost anything.
SELECT EXISTS (SELECT FROM groups g WHERE g.organization_id = sqlc.arg(organization_id) AND g.quota_allowance > 0);

-- name: GetQuota :one
-- Returns what a user's workspaces in an organization cost a day, except one, and what they may cost. The cost of a workspace is that of its newest
-- build that ended with resources. It reads every workspace of the user.
SELECT (SELECT coalesce(sum(g.quota_allowance), 0) FROM groups g
		JOIN organization_members m ON m.organization_id = g.organization_id AND m.user_id = sqlc.arg(owner_id)::uuid
		WHERE g.organization_id = sqlc.arg(organization_id)
			AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id)))::bigint AS allowance,
	(SELECT coalesce(sum(b.daily_cost), 0) FROM workspaces w
		JOIN LATERAL (SELECT wb.daily_cost FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
			WHERE wb.workspace_id = w.id AND j.completed_at IS NOT NULL AND (j.status = 'succeeded' OR wb.daily_cost > 0)
			ORDER BY wb.build_number DESC LIMIT 1) b ON true
		WHERE w.owner_id = sqlc.arg(owner_id) AND w.organization_id = sqlc.arg(organization_id) AND w.deleted_at IS NULL
			AND w.id <> sqlc.arg(except_id)::uuid)::bigint AS used;

-- name: GetLatestStartCost :one
-- Returns the version and the daily cost of the newest start of a workspace.
SELECT template_version_id, daily_cost FROM workspace_builds WHERE workspace_id = $1 AND transition = 'start' ORDER BY build_number DESC LIMIT 1;
