-- name: InsertBuild :one
-- Copies the previous build's state, so that it is kept even if this job never reports one.
INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, reason, initiator_id, log_level, state, max_deadline, provisioner_tags, template_version_preset_id, by_owner, allow_replacing)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9,
	COALESCE(sqlc.narg(state)::bytea, (SELECT p.state FROM workspace_builds p WHERE p.workspace_id = $2 ORDER BY p.build_number DESC LIMIT 1), ''), $10, $11, $12, sqlc.arg(by_owner)::boolean, sqlc.narg(allow_replacing)::text[])
RETURNING id;

-- name: GetBuild :one
-- Returns everything except the state.
SELECT id, workspace_id, build_number, template_version_id, job_id, transition, reason, initiator_id, log_level, deadline, max_deadline, created_at
FROM workspace_builds WHERE id = $1;

-- name: GetBuildByJob :one
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.initiator_id, b.instant_claim, u.username AS owner_name,
	EXISTS (SELECT FROM prebuilt_workspaces x WHERE x.claim_build_id = b.id) AS claims
FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id JOIN users u ON u.id = w.owner_id WHERE b.job_id = $1;

-- name: GetBuildOffer :one
-- Returns all that a provisioner needs to run a build's job: a claim waits for it.
-- stopped_before: the newest build before it that was not refused is a stop that succeeded. It created created_before.
-- same_as_before: the newest build before it that succeeded has the same version and parameters.
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.transition, b.log_level, b.state, b.credentials_withheld,
	b.allow_replacing, y.allow_replacing AS template_allows_replacing,
	COALESCE(settled.stopped, false)::boolean AS stopped_before, COALESCE(settled.created_resources, '{}')::text[] AS created_before,
	COALESCE((SELECT x.template_version_id = b.template_version_id AND NOT EXISTS (
			(SELECT p.name, p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = b.id
				EXCEPT SELECT p.name, p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = x.id)
			UNION ALL (SELECT p.name, p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = x.id
				EXCEPT SELECT p.name, p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = b.id))
		FROM workspace_builds x JOIN provisioner_jobs j ON j.id = x.job_id
		WHERE x.workspace_id = b.workspace_id AND x.build_number < b.build_number AND j.status = 'succeeded'
		ORDER BY x.build_number DESC LIMIT 1), false)::boolean AS same_as_before,
	w.name AS workspace_name, w.organization_id, o.name AS organization_name, w.owner_id, t.id AS template_id, t.name AS template_name,
	t.identity_build_audience,
	v.name AS version_name, v.names_owner_ssh_private_key, v.names_owner_session_token, v.names_owner_oidc_access_token,
	EXISTS (SELECT FROM template_version_external_auth e WHERE e.template_version_id = v.id) AS asks_logins,
	EXISTS (SELECT FROM prebuilt_workspaces x WHERE x.claim_build_id = b.id) AS claims,
	EXISTS (SELECT FROM groups g WHERE g.organization_id = w.organization_id AND g.quota_allowance > 0) AS has_quotas,
	u.username, u.email, u.name AS full_name, u.login_type, u.roles, COALESCE(k.public_key, '')::text AS ssh_public_key,
	ARRAY(SELECT g.name FROM groups g JOIN organization_members m ON m.organization_id = g.organization_id AND m.user_id = w.owner_id
		WHERE g.organization_id = w.organization_id
			AND (g.id = g.organization_id OR EXISTS (SELECT FROM group_members x WHERE x.group_id = g.id AND x.user_id = m.user_id))
		ORDER BY g.id = g.organization_id DESC, lower(g.name))::text[] AS groups,
	ARRAY(SELECT x.name FROM template_version_variables x WHERE x.template_version_id = v.id AND COALESCE(x.given, x.value <> x.default_value OR x.required) ORDER BY x.name)::text[] AS variable_names,
	ARRAY(SELECT x.value FROM template_version_variables x WHERE x.template_version_id = v.id AND COALESCE(x.given, x.value <> x.default_value OR x.required) ORDER BY x.name)::text[] AS variable_values,
	ARRAY(SELECT x.sensitive FROM template_version_variables x WHERE x.template_version_id = v.id AND COALESCE(x.given, x.value <> x.default_value OR x.required) ORDER BY x.name)::boolean[] AS variables_sensitive,
	ARRAY(SELECT p.name FROM workspace_build_parameters p WHERE p.workspace_build_id = b.id ORDER BY p.name)::text[] AS parameter_names,
	ARRAY(SELECT p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = b.id ORDER BY p.name)::text[] AS parameter_values,
	ARRAY(SELECT p.name FROM workspace_build_parameters p WHERE p.workspace_build_id = before.id ORDER BY p.name)::text[] AS previous_names,
	ARRAY(SELECT p.value FROM workspace_build_parameters p WHERE p.workspace_build_id = before.id ORDER BY p.name)::text[] AS previous_values,
	COALESCE(before.unknown_resources, '{}')::text[] AS unknown_resources, COALESCE(before.tainted_resources, '{}')::text[] AS tainted_resources
FROM workspace_builds b
JOIN workspaces w ON w.id = b.workspace_id
JOIN organizations o ON o.id = w.organization_id
JOIN templates t ON t.id = w.template_id AND t.deleted_at IS NULL
JOIN template_policies y ON y.template_id = t.id
JOIN template_versions v ON v.id = b.template_version_id
JOIN users u ON u.id = w.owner_id
LEFT JOIN git_ssh_keys k ON k.user_id = w.owner_id
LEFT JOIN LATERAL (SELECT x.id, x.unknown_resources, x.tainted_resources FROM workspace_builds x
	WHERE x.workspace_id = b.workspace_id AND x.build_number < b.build_number ORDER BY x.build_number DESC LIMIT 1) before ON true
LEFT JOIN LATERAL (SELECT x.transition = 'stop' AND j.status = 'succeeded' AS stopped, x.created_resources
	FROM workspace_builds x JOIN provisioner_jobs j ON j.id = x.job_id
	WHERE x.workspace_id = b.workspace_id AND x.build_number < b.build_number AND x.would_replace = '{}' ORDER BY x.build_number DESC LIMIT 1) settled ON true
WHERE b.job_id = $1;

-- name: GetLatestBuild :one
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.deadline, b.max_deadline, b.daily_cost, j.status AS job_status
FROM workspace_builds b JOIN provisioner_jobs j ON j.id = b.job_id
WHERE b.workspace_id = $1 ORDER BY b.build_number DESC LIMIT 1;

-- name: ListBuildRows :many
-- Lists what the JSON of a workspace's builds shows in addition to their jobs and resources, newest first: those after one of them, if it is
-- given. A page_limit of 0 means all.
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.initiator_id, b.daily_cost,
	b.template_version_preset_id, b.deadline, b.max_deadline, b.created_at, b.updated_at, b.unknown_resources, b.tainted_resources, b.explanation, b.credentials_withheld, b.instant_claim, b.allow_replacing, b.would_replace, v.name AS template_version_name, w.name AS workspace_name,
	w.owner_id AS workspace_owner_id, w.deleted_at AS workspace_deleted_at, ou.username AS workspace_owner_name, ou.name AS workspace_owner_full_name,
	iu.username AS initiator_name, j.status AS job_status, j.started_at AS job_started_at
FROM workspace_builds b
JOIN template_versions v ON v.id = b.template_version_id
JOIN workspaces w ON w.id = b.workspace_id
JOIN users ou ON ou.id = w.owner_id
JOIN users iu ON iu.id = b.initiator_id
JOIN provisioner_jobs j ON j.id = b.job_id
WHERE b.workspace_id = $1
	AND (sqlc.narg(build_number)::int IS NULL OR b.build_number = sqlc.narg(build_number))
	AND (sqlc.narg(since)::timestamptz IS NULL OR b.created_at >= sqlc.narg(since))
	AND (sqlc.narg(after_id)::uuid IS NULL OR (b.created_at, b.build_number)
		< (SELECT a.created_at, a.build_number FROM workspace_builds a WHERE a.id = sqlc.narg(after_id)))
ORDER BY b.created_at DESC, b.build_number DESC
LIMIT NULLIF(sqlc.arg(page_limit)::int, 0) OFFSET sqlc.arg(page_offset)::int;

-- name: ListBuildRowsByID :many
-- As ListBuildRows. A subquery unnests the ids: PostgreSQL would plan anew for each array, which costs more than the query.
SELECT b.id, b.workspace_id, b.build_number, b.template_version_id, b.job_id, b.transition, b.reason, b.initiator_id, b.daily_cost,
	b.template_version_preset_id, b.deadline, b.max_deadline, b.created_at, b.updated_at, b.unknown_resources, b.tainted_resources, b.explanation, b.credentials_withheld, b.instant_claim, b.allow_replacing, b.would_replace, v.name AS template_version_name, w.name AS workspace_name,
	w.owner_id AS workspace_owner_id, w.deleted_at AS workspace_deleted_at, ou.username AS workspace_owner_name, ou.name AS workspace_owner_full_name,
	iu.username AS initiator_name, j.status AS job_status, j.started_at AS job_started_at
FROM workspace_builds b
JOIN template_versions v ON v.id = b.template_version_id
JOIN workspaces w ON w.id = b.workspace_id
JOIN users ou ON ou.id = w.owner_id
JOIN users iu ON iu.id = b.initiator_id
JOIN provisioner_jobs j ON j.id = b.job_id
WHERE b.id = ANY (ARRAY(SELECT unnest(sqlc.arg(ids)::uuid[])))
ORDER BY b.created_at DESC, b.build_number DESC;

-- name: GetBuildState :one
SELECT state FROM workspace_builds WHERE id = $1;

-- name: GetStateBefore :one
-- Returns the newest state that is not empty of the builds before the given number.
SELECT state FROM workspace_builds WHERE workspace_id = $1 AND build_number < $2 AND state <> '' ORDER BY build_number DESC LIMIT 1;

-- name: GetStateRemoved :one
-- Returns when retention removed the state; null if it did not.
SELECT state_removed_at FROM workspace_builds WHERE id = $1;

-- name: GetBuildTags :one
-- Returns the provisioner tags that the build itself asked for.
SELECT provisioner_tags FROM workspace_builds WHERE id = $1;

-- name: UpdateBuildState :exec
UPDATE workspace_builds SET state = $2, updated_at = now() WHERE id = $1;

-- name: UpdateBuildUnsettled :exec
-- Stores the resources that the build, or an earlier one, began to change and left unsettled.
UPDATE workspace_builds SET unknown_resources = sqlc.arg(unknown)::text[], tainted_resources = sqlc.arg(tainted)::text[] WHERE id = $1;

-- name: GetUnsettledBefore :one
-- Returns what the build before the given number left unsettled.
SELECT unknown_resources, tainted_resources FROM workspace_builds WHERE workspace_id = $1 AND build_number < $2 ORDER BY build_number DESC LIMIT 1;

-- name: UpdateBuildDeadline :exec
UPDATE workspace_builds SET deadline = $2, updated_at = now() WHERE id = $1;

-- name: FinishBuild :exec
-- Stores what a build's result says about the build itself: its state if there is one, its cost if its resources are known, and its bounds if
-- it runs from now on.
UPDATE workspace_builds SET state = COALESCE(sqlc.narg(state)::bytea, state), daily_cost = COALESCE(sqlc.narg(daily_cost)::int, daily_cost),
	deadline = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.narg(deadline)::timestamptz ELSE deadline END,
	max_deadline = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.narg(max_deadline)::timestamptz ELSE max_deadline END,
	ttl_ms = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.arg(ttl_ms)::bigint ELSE ttl_ms END,
	ttl_from = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.arg(ttl_from)::text ELSE ttl_from END,
	max_from = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.arg(max_from)::text ELSE max_from END,
	bounded_at = CASE WHEN sqlc.arg(bounded)::boolean THEN sqlc.narg(bounded_at)::timestamptz ELSE bounded_at END,
	updated_at = now()
WHERE id = $1;

-- name: GetBuildBefore :one
-- Returns the newest build before the given number that was not refused.
SELECT b.id, b.transition, j.status AS job_status FROM workspace_builds b JOIN provisioner_jobs j ON j.id = b.job_id
WHERE b.workspace_id = $1 AND b.build_number < $2 AND b.would_replace = '{}' ORDER BY b.build_number DESC LIMIT 1;

-- name: RefuseBuild :exec
-- Marks a build that was refused because of what it would replace. It has changed nothing, so the workspace keeps the version of the build before.
UPDATE workspace_builds b SET would_replace = sqlc.arg(would_replace)::text[], template_version_id = p.template_version_id,
	template_version_preset_id = p.template_version_preset_id, updated_at = now()
FROM workspace_builds p WHERE b.id = $1 AND p.id = sqlc.arg(before)::uuid;

-- name: UpdateBuildCreated :exec
UPDATE workspace_builds SET created_resources = sqlc.arg(created)::text[] WHERE id = $1;

-- name: DeleteBuildParameters :exec
DELETE FROM workspace_build_parameters WHERE workspace_build_id = $1;

-- name: CopyBuildParameters :exec
INSERT INTO workspace_build_parameters (workspace_build_id, name, value, computed)
SELECT sqlc.arg(into_build)::uuid, p.name, p.value, p.computed FROM workspace_build_parameters p WHERE p.workspace_build_id = sqlc.arg(from_build)::uuid;

-- name: InsertBuildParameters :exec
-- Stores values that a build does not have yet.
INSERT INTO workspace_build_parameters (workspace_build_id, name, value, computed)
SELECT sqlc.arg(workspace_build_id)::uuid, unnest(sqlc.arg(names)::text[]), unnest(sqlc.arg(parameter_values)::text[]), unnest(sqlc.arg(computed)::boolean[])
ON CONFLICT (workspace_build_id, name) DO NOTHING;

-- name: DeleteVanishedParameters :exec
-- Deletes the computed values of parameters that a build's template no longer has: its version does not define them, and the build did not
-- find them.
DELETE FROM workspace_build_parameters p USING workspace_builds b
WHERE p.workspace_build_id = $1 AND b.id = $1 AND p.computed AND p.name <> ALL (sqlc.arg(found)::text[])
	AND NOT EXISTS (SELECT FROM template_version_parameters d WHERE d.template_version_id = b.template_version_id AND d.name IN (p.name, '*'));

-- name: ListBuildParameters :many
SELECT name, value, computed FROM workspace_build_parameters WHERE workspace_build_id = $1 ORDER BY name;

-- name: ListRecentParameters :many
-- Returns the newest value that a user's workspaces of a template, deleted ones too, have of each parameter, if it may be shown, is kept
-- from build to build, and was not computed by the template.
SELECT DISTINCT ON (p.name) p.name, p.value FROM workspaces w
JOIN workspace_builds b ON b.id = w.latest_build_id
JOIN workspace_build_parameters p ON p.workspace_build_id = b.id
JOIN template_version_parameters d ON d.template_version_id = b.template_version_id AND d.name = p.name
WHERE w.owner_id = $1 AND w.template_id = $2 AND NOT p.computed
	AND NOT COALESCE(d.definition->'conditional' = 'true', false) AND NOT COALESCE(d.definition->'ephemeral' = 'true', false)
	AND COALESCE(d.definition->>'styling', '') !~* 'mask|\\'
ORDER BY p.name, b.created_at DESC, b.id;
