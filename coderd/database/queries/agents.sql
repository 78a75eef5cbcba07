-- name: InsertResource :exec
INSERT INTO workspace_resources (id, job_id, transition, type, name, icon, hide, daily_cost, instance_type, metadata)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (id) DO UPDATE SET icon = EXCLUDED.icon, hide = EXCLUDED.hide, daily_cost = EXCLUDED.daily_cost, instance_type = EXCLUDED.instance_type,
	metadata = EXCLUDED.metadata;

-- name: DeleteResourcesExcept :exec
-- Deletes the resources that the job reported while it ran and that no longer existed at its end.
DELETE FROM workspace_resources WHERE job_id = $1 AND transition = $2 AND id <> ALL (sqlc.arg(ids)::uuid[]);

-- name: ListResources :many
-- Here and below, a subquery unnests the ids: PostgreSQL would plan anew for each array, which costs more than the query.
SELECT * FROM workspace_resources WHERE job_id = ANY (ARRAY(SELECT unnest(sqlc.arg(job_ids)::uuid[]))) ORDER BY transition, type, name, id;

-- name: UpsertAgent :execrows
-- Stores an agent of a build. An agent that an earlier build had moves to this build: its states are reset, but a connected agent stays
-- connected. The agent of a dev container keeps its token, which no build knows, and so does one whose machine has proven who it is, until there is
-- another machine or the workspace stops. What the workspace has forgotten of a token stays forgotten.
-- Affects no row if the id belongs to another workspace.
INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash, operating_system, architecture, directory, environment,
	startup_script_behavior, motd_file, troubleshooting_url, connection_timeout_seconds, display_apps, display_order, metadata, user_data, complete, external, parent_id,
	monitors, offline_token_hash, auth, instance_id, instance_account)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26)
ON CONFLICT (id) DO UPDATE SET resource_id = EXCLUDED.resource_id, build_number = EXCLUDED.build_number, name = EXCLUDED.name,
	token_hash = CASE WHEN EXCLUDED.parent_id IS NOT NULL OR keeps_machine(workspace_agents, EXCLUDED.auth, EXCLUDED.instance_id)
		THEN workspace_agents.token_hash ELSE EXCLUDED.token_hash END, operating_system = EXCLUDED.operating_system, architecture = EXCLUDED.architecture,
	directory = EXCLUDED.directory, environment = EXCLUDED.environment, startup_script_behavior = EXCLUDED.startup_script_behavior,
	motd_file = EXCLUDED.motd_file, troubleshooting_url = EXCLUDED.troubleshooting_url,
	connection_timeout_seconds = EXCLUDED.connection_timeout_seconds, display_apps = EXCLUDED.display_apps,
	display_order = EXCLUDED.display_order, metadata = EXCLUDED.metadata, user_data = EXCLUDED.user_data, complete = EXCLUDED.complete,
	external = EXCLUDED.external, parent_id = EXCLUDED.parent_id, monitors = EXCLUDED.monitors,
	auth = EXCLUDED.auth, instance_id = EXCLUDED.instance_id, instance_account = EXCLUDED.instance_account,
	proven_build = CASE WHEN keeps_machine(workspace_agents, EXCLUDED.auth, EXCLUDED.instance_id) THEN EXCLUDED.build_number
		WHEN workspace_agents.instance_id = EXCLUDED.instance_id THEN workspace_agents.proven_build END,
	offline_token_hash = CASE WHEN workspace_agents.token_hash = EXCLUDED.token_hash OR keeps_machine(workspace_agents, EXCLUDED.auth, EXCLUDED.instance_id)
		THEN workspace_agents.offline_token_hash ELSE EXCLUDED.offline_token_hash END
WHERE workspace_agents.workspace_id = EXCLUDED.workspace_id;

-- name: GetBuildAgent :one
-- Returns the agent of a build with an id or a name.
SELECT a.id, a.name, a.operating_system, a.architecture, a.token_hash, a.external
FROM workspace_agents a JOIN workspace_resources r ON r.id = a.resource_id JOIN workspace_builds b ON b.job_id = r.job_id
WHERE b.id = sqlc.arg(build_id) AND (a.id = sqlc.narg(id)::uuid OR a.name = sqlc.arg(name)::text);

-- name: GetAgentForUpdate :one
SELECT * FROM workspace_agents WHERE id = $1 FOR UPDATE;

-- name: UpdateAgentMonitors :exec
UPDATE workspace_agents SET monitors = $2 WHERE id = $1;

-- name: ListMonitorNotices :many
-- Returns when a workspace's owner was last notified of each volume, "" being the memory, by any agent of the workspace.
SELECT (m ->> 'volume')::text AS volume, max((m ->> 'notified_at')::timestamptz)::timestamptz AS notified_at
FROM workspace_agents a, jsonb_array_elements(a.monitors) m
WHERE a.workspace_id = $1 AND m ? 'notified_at' GROUP BY 1;

-- name: ResetAgentConnection :exec
-- Resets an agent that a new build has kept: it has not connected since.
UPDATE workspace_agents SET created_at = now(), first_connected_at = NULL, last_connected_at = NULL, disconnected_at = NULL,
	lifecycle_state = 'created', lifecycle_changed_at = NULL, started_at = NULL, ready_at = NULL, version = '', api_version = '',
	expanded_directory = '', startup_problem = '', startup_problem_at = NULL
WHERE id = $1;

-- name: ResetAgentLogs :exec
UPDATE workspace_agents SET logs_length = 0, logs_overflowed = false WHERE id = $1;

-- name: DeleteAgentLogs :exec
DELETE FROM workspace_agent_logs WHERE agent_id = $1;

-- name: DeleteLogSourcesExcept :exec
-- Deletes the sources of scripts and dev containers that an agent no longer has, and with rebuilt those of programs, too.
DELETE FROM workspace_agent_log_sources s WHERE s.agent_id = $1 AND s.id <> ALL (sqlc.arg(ids)::uuid[]) AND (sqlc.arg(rebuilt)::boolean
	OR EXISTS (SELECT 1 FROM workspace_agent_scripts x WHERE x.agent_id = s.agent_id AND x.log_source_id = s.id)
	OR EXISTS (SELECT 1 FROM workspace_agent_devcontainers d WHERE d.agent_id = s.agent_id AND d.log_source_id = s.id));

-- name: CountProgramLogSources :one
-- Counts the log sources of an agent, other than the given one, that belong to neither a script nor a dev container.
SELECT count(*) FROM workspace_agent_log_sources s WHERE s.agent_id = $1 AND s.id <> $2
	AND NOT EXISTS (SELECT 1 FROM workspace_agent_scripts x WHERE x.agent_id = s.agent_id AND x.log_source_id = s.id)
	AND NOT EXISTS (SELECT 1 FROM workspace_agent_devcontainers d WHERE d.agent_id = s.agent_id AND d.log_source_id = s.id);

-- name: UpsertLogSource :execrows
-- Affects no row if the id belongs to another agent.
INSERT INTO workspace_agent_log_sources (id, agent_id, display_name, icon) VALUES ($1, $2, $3, $4)
ON CONFLICT (id) DO UPDATE SET display_name = EXCLUDED.display_name, icon = EXCLUDED.icon
WHERE workspace_agent_log_sources.agent_id = EXCLUDED.agent_id;

-- name: ResetLogSources :exec
UPDATE workspace_agent_log_sources SET last_seq = 0, head_bytes = 0, tail_bytes = 0, left_out = 0, gap_id = NULL WHERE agent_id = $1;

-- name: DeleteScriptsExcept :exec
DELETE FROM workspace_agent_scripts WHERE agent_id = $1 AND id <> ALL (sqlc.arg(ids)::uuid[]);

-- name: UpsertScript :execrows
-- Affects no row if the id belongs to another agent.
INSERT INTO workspace_agent_scripts (id, agent_id, log_source_id, display_name, script, cron, log_path, start_blocks_login, run_on_start, run_on_stop,
	timeout_seconds, position)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
ON CONFLICT (id) DO UPDATE SET log_source_id = EXCLUDED.log_source_id, display_name = EXCLUDED.display_name, script = EXCLUDED.script,
	cron = EXCLUDED.cron, log_path = EXCLUDED.log_path, start_blocks_login = EXCLUDED.start_blocks_login, run_on_start = EXCLUDED.run_on_start,
	run_on_stop = EXCLUDED.run_on_stop, timeout_seconds = EXCLUDED.timeout_seconds, position = EXCLUDED.position
WHERE workspace_agent_scripts.agent_id = EXCLUDED.agent_id;

-- name: ResetScripts :exec
UPDATE workspace_agent_scripts SET exit_code = NULL, timed_out = false, started_at = NULL, ended_at = NULL WHERE agent_id = $1;

-- name: DeleteAppsExcept :exec
DELETE FROM workspace_apps WHERE agent_id = $1 AND id <> ALL (sqlc.arg(ids)::uuid[]);

-- name: UpsertApp :execrows
-- Affects no row if the id belongs to another agent. Keeps the health as long as the check stays the same.
INSERT INTO workspace_apps (id, agent_id, slug, display_name, icon, command, url, external, subdomain, sharing_level, healthcheck_url,
	healthcheck_interval, healthcheck_threshold, health, hidden, display_order, display_group, open_in, tooltip)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
ON CONFLICT (id) DO UPDATE SET slug = EXCLUDED.slug, display_name = EXCLUDED.display_name, icon = EXCLUDED.icon, command = EXCLUDED.command,
	url = EXCLUDED.url, external = EXCLUDED.external, subdomain = EXCLUDED.subdomain, sharing_level = EXCLUDED.sharing_level,
	health = CASE WHEN workspace_apps.healthcheck_url = EXCLUDED.healthcheck_url THEN workspace_apps.health ELSE EXCLUDED.health END,
	healthcheck_url = EXCLUDED.healthcheck_url, healthcheck_interval = EXCLUDED.healthcheck_interval,
	healthcheck_threshold = EXCLUDED.healthcheck_threshold, hidden = EXCLUDED.hidden, display_order = EXCLUDED.display_order,
	display_group = EXCLUDED.display_group, open_in = EXCLUDED.open_in, tooltip = EXCLUDED.tooltip
WHERE workspace_apps.agent_id = EXCLUDED.agent_id;

-- name: ResetApps :exec
UPDATE workspace_apps SET health = CASE WHEN healthcheck_url = '' THEN 'disabled' ELSE 'initializing' END WHERE agent_id = $1;

-- name: ListAgentsOfResources :many
-- Lists the agents of resources, with their status and problem.
SELECT sqlc.embed(a), agent_status(a) AS status, agent_problem(a) AS problem FROM workspace_agents a
WHERE a.resource_id = ANY (ARRAY(SELECT unnest(sqlc.arg(resource_ids)::uuid[]))) ORDER BY a.display_order, a.name, a.id;

-- name: ListAppsOfAgents :many
SELECT * FROM workspace_apps WHERE agent_id = ANY (ARRAY(SELECT unnest(sqlc.arg(agent_ids)::uuid[]))) ORDER BY display_order, display_name, slug;

-- name: ListScriptsOfAgents :many
SELECT * FROM workspace_agent_scripts WHERE agent_id = ANY (ARRAY(SELECT unnest(sqlc.arg(agent_ids)::uuid[]))) ORDER BY position, id;

-- name: ListLogSourcesOfAgents :many
SELECT * FROM workspace_agent_log_sources WHERE agent_id = ANY (ARRAY(SELECT unnest(sqlc.arg(agent_ids)::uuid[]))) ORDER BY created_at, id;

-- name: GetAgent :one
SELECT * FROM workspace_agents WHERE id = $1;

-- name: GetAgentWithStatus :one
-- Returns an agent as ListAgentsOfResources does.
SELECT sqlc.embed(a), agent_status(a) AS status, agent_problem(a) AS problem FROM workspace_agents a WHERE a.id = $1;

-- name: GetAgentOwner :one
-- Returns the owner of an agent. Agents of imports and dry runs have no owner, and no row.
SELECT a.id, a.name, w.id AS workspace_id, w.name AS workspace_name, w.owner_id, w.organization_id, w.sharing, w.deleted_at AS workspace_deleted_at,
	u.username AS owner_name
FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id JOIN users u ON u.id = w.owner_id
WHERE a.id = $1;

-- name: GetReachableAgent :one
-- Returns the workspace of an agent if the user may connect to it, as its owner or because it is shared with them; see rbac.Actor.Reaches.
SELECT a.id, a.name, a.parent_id, a.awaited_build, w.id AS workspace_id, w.name AS workspace_name, u.username AS owner_name
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN organization_members m ON m.organization_id = w.organization_id AND m.user_id = sqlc.arg(user_id)::uuid
WHERE a.id = sqlc.arg(id) AND w.deleted_at IS NULL
	AND (w.owner_id = m.user_id OR w.sharing <> '{}' AND w.sharing ?| (ARRAY[m.user_id::text, m.organization_id::text]
		|| ARRAY(SELECT g.group_id::text FROM group_members g WHERE g.user_id = m.user_id)));

-- name: IsLoginBlocked :one
-- Reports whether logins to an agent wait for its start scripts, as sdk.WorkspaceAgent.BlocksLogin does.
SELECT (a.lifecycle_state IN ('created', 'starting') AND (a.startup_script_behavior = 'blocking'
	OR EXISTS (SELECT FROM workspace_agent_scripts s WHERE s.agent_id = a.id AND s.run_on_start AND s.start_blocks_login AND s.ended_at IS NULL)))::boolean AS blocked
FROM workspace_agents a WHERE a.id = $1;

-- name: ListAgentIDsByName :many
-- Returns up to two agents that match a name, in workspaces that a user owns or that are shared with the user; see GetReachableAgent. An
-- empty owner_name means the user, an empty agent_name matches all agents but those of dev containers.
SELECT a.id
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN organization_members m ON m.organization_id = w.organization_id AND m.user_id = sqlc.arg(user_id)::uuid
WHERE (sqlc.arg(owner_name)::text = '' AND w.owner_id = m.user_id OR lower(u.username) = lower(sqlc.arg(owner_name)::text))
	AND (w.owner_id = m.user_id OR w.sharing <> '{}' AND w.sharing ?| (ARRAY[m.user_id::text, m.organization_id::text]
		|| ARRAY(SELECT g.group_id::text FROM group_members g WHERE g.user_id = m.user_id)))
	AND lower(w.name) = lower(sqlc.arg(workspace_name)::text) AND w.deleted_at IS NULL
	AND (sqlc.arg(agent_name)::text = '' AND a.parent_id IS NULL OR a.name = sqlc.arg(agent_name)::text) AND a.token_hash IS NOT NULL
LIMIT 2;

-- name: ListReachableAgents :many
-- Returns those of the agents that a user may connect to while they run; see GetReachableAgent.
SELECT a.id
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id AND w.deleted_at IS NULL
JOIN organization_members m ON m.organization_id = w.organization_id AND m.user_id = sqlc.arg(user_id)::uuid
WHERE a.id = ANY (sqlc.arg(ids)::uuid[]) AND a.awaited_build IS NULL
	AND (w.owner_id = m.user_id OR w.sharing <> '{}' AND w.sharing ?| (ARRAY[m.user_id::text, m.organization_id::text]
		|| ARRAY(SELECT g.group_id::text FROM group_members g WHERE g.user_id = m.user_id)));

-- name: GetAdmittedAgent :one
-- Returns the agent with a token or an id if it may be on the mesh: its workspace is not deleted, its owner is not suspended or deleted (prebuilt
-- workspaces have an owner who always is), and the newest build that has begun is a start that is running or has succeeded. A start that was refused because of what it would
-- replace has changed nothing, and does not count. While a start runs, agents of the previous build may stay; agents of an instant claim are of a build that has not begun. With stopping, it also returns an agent whose workspace is being stopped or deleted, until the agent has reported the end of its stop
-- scripts. The id is one value rather than one of two conditions, so that PostgreSQL begins with the agent even before it has statistics of the tables.
SELECT a.id, a.name, w.name AS workspace_name, u.username AS owner_name, a.build_number, a.complete, a.awaited_build, w.id AS workspace_id, w.owner_id, a.user_data,
	(b.transition <> 'start')::boolean AS stopping,
	COALESCE(b.transition = 'start' AND (a.token_hash = sqlc.narg(token_hash)::bytea AND a.return_token_hash IS NOT NULL
		OR a.return_token_hash = sqlc.narg(token_hash)::bytea AND a.offline_token_hash IS NOT NULL), false)::boolean AS unsettled,
	EXISTS (SELECT FROM template_consents c WHERE c.user_id = w.owner_id AND c.template_id = w.template_id) AS consented
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN LATERAL (
	SELECT wb.build_number, wb.transition, j.status FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = w.id AND j.started_at IS NOT NULL AND NOT (wb.transition = 'start' AND wb.would_replace <> '{}')
	ORDER BY wb.build_number DESC LIMIT 1
) b ON true
WHERE a.id = COALESCE(sqlc.narg(id)::uuid, (SELECT t.id FROM workspace_agents t
		WHERE t.token_hash = sqlc.narg(token_hash)::bytea OR t.return_token_hash = sqlc.narg(token_hash)::bytea ORDER BY t.build_number DESC LIMIT 1))
	AND a.token_hash IS NOT NULL
	AND w.deleted_at IS NULL AND (u.deleted_at IS NULL OR u.id = prebuilds_owner()) AND u.status <> 'suspended'
	AND (b.transition = 'start' AND (b.status = 'running' OR (b.status = 'succeeded' AND a.build_number >= b.build_number))
		OR sqlc.arg(stopping)::boolean AND b.transition <> 'start' AND b.status IN ('running', 'canceling')
			AND a.lifecycle_state NOT IN ('off', 'shutdown_timeout', 'shutdown_error'))
LIMIT 1;

-- name: ListInstanceAgents :many
-- Returns the agents that a machine of a cloud may be, by the rule of GetAdmittedAgent. Machines are admitted while their workspaces run.
SELECT a.id, a.name, w.name AS workspace_name, u.username AS owner_name, a.instance_account
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN LATERAL (
	SELECT wb.build_number, wb.transition, j.status FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = w.id AND j.started_at IS NOT NULL AND NOT (wb.transition = 'start' AND wb.would_replace <> '{}')
	ORDER BY wb.build_number DESC LIMIT 1
) b ON true
WHERE a.instance_id = sqlc.arg(instance_id)::text AND a.instance_id <> '' AND a.auth = sqlc.arg(auth)::text AND a.token_hash IS NOT NULL AND a.parent_id IS NULL
	AND w.deleted_at IS NULL AND (u.deleted_at IS NULL OR u.id = prebuilds_owner()) AND u.status <> 'suspended'
	AND b.transition = 'start' AND (b.status = 'running' OR (b.status = 'succeeded' AND a.build_number >= b.build_number))
LIMIT 2;

-- name: AdmitInstance :execrows
-- Gives an agent the token of the machine that has proven to be it. Affects no row if its build has admitted one, or the document is older than
-- the last that was accepted.
UPDATE workspace_agents SET token_hash = sqlc.arg(token_hash)::bytea, offline_token_hash = sqlc.arg(offline_token_hash)::bytea, return_token_hash = NULL,
	proven_build = build_number, proven_at = sqlc.arg(at)::timestamptz
WHERE id = $1 AND token_hash IS NOT NULL AND (proven_build IS NULL OR proven_build < build_number) AND (proven_at IS NULL OR proven_at <= sqlc.arg(at)::timestamptz);

-- name: IsAgentWaiting :one
-- Reports whether the next start of a workspace may admit the agent that got a token while the workspace stopped: the workspace is not deleted,
-- and no later start succeeded without the agent.
SELECT EXISTS (
	SELECT FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id
	WHERE a.return_token_hash = sqlc.arg(return_token_hash)::bytea AND w.deleted_at IS NULL
		AND NOT EXISTS (SELECT FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
			WHERE wb.workspace_id = w.id AND wb.build_number > a.build_number AND wb.transition = 'start' AND j.status = 'succeeded')
);

-- name: SettleReturnToken :exec
-- Notes with which of its tokens an agent came: with that of the running build, no former machine returns; with the return token, the machine keeps
-- that one. No other machine is admitted in the place of one that has returned.
UPDATE workspace_agents SET
	proven_build = CASE WHEN auth <> 'token' AND token_hash IS DISTINCT FROM sqlc.arg(token_hash)::bytea THEN build_number ELSE proven_build END,
	return_token_hash = CASE WHEN token_hash = sqlc.arg(token_hash)::bytea THEN NULL ELSE return_token_hash END,
	offline_token_hash = CASE WHEN token_hash = sqlc.arg(token_hash)::bytea THEN offline_token_hash END
WHERE id = $1 AND (token_hash = sqlc.arg(token_hash)::bytea OR return_token_hash = sqlc.arg(token_hash)::bytea);

-- name: SetReturnToken :execrows
-- Stores the token with which the next start admits an agent that runs its stop scripts. Affects no row for agents that end with the workspace:
-- those of a workspace that is being deleted, those of dev containers, and external ones.
UPDATE workspace_agents a SET return_token_hash = sqlc.arg(return_token_hash)::bytea, offline_token_hash = NULL
WHERE a.id = $1 AND a.token_hash IS NOT NULL AND a.parent_id IS NULL AND NOT a.external AND (
	SELECT wb.transition = 'stop' FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = a.workspace_id AND j.started_at IS NOT NULL ORDER BY wb.build_number DESC LIMIT 1);

-- name: ListAdmittedAgents :many
-- Returns those of the given agents that may be on the mesh, by the rule of GetAdmittedAgent.
SELECT a.id
FROM workspace_agents a
JOIN workspaces w ON w.id = a.workspace_id
JOIN users u ON u.id = w.owner_id
JOIN LATERAL (
	SELECT wb.build_number, wb.transition, j.status FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id
	WHERE wb.workspace_id = w.id AND j.started_at IS NOT NULL AND NOT (wb.transition = 'start' AND wb.would_replace <> '{}')
	ORDER BY wb.build_number DESC LIMIT 1
) b ON true
WHERE a.id = ANY (sqlc.arg(ids)::uuid[]) AND a.token_hash IS NOT NULL
	AND w.deleted_at IS NULL AND (u.deleted_at IS NULL OR u.id = prebuilds_owner()) AND u.status <> 'suspended'
	AND (b.transition = 'start' AND (b.status = 'running' OR (b.status = 'succeeded' AND a.build_number >= b.build_number))
		OR sqlc.arg(stopping)::boolean AND b.transition <> 'start' AND b.status IN ('running', 'canceling')
			AND a.lifecycle_state NOT IN ('off', 'shutdown_timeout', 'shutdown_error'));

-- name: GetAgentManifest :one
-- Returns what an agent's manifest contains about it and its workspace.
SELECT sqlc.embed(a), w.name AS workspace_name, u.id AS owner_id, u.username AS owner_name, u.email AS owner_email,
	EXISTS (SELECT FROM template_consents c WHERE c.user_id = w.owner_id AND c.template_id = w.template_id) AS consented
FROM workspace_agents a JOIN workspaces w ON w.id = a.workspace_id JOIN users u ON u.id = w.owner_id
WHERE a.id = $1 AND a.token_hash IS NOT NULL AND w.deleted_at IS NULL;

-- name: AgentConnected :execrows
-- Records that a connection began.
UPDATE workspace_agents SET version = $2, api_version = $3, operating_system = COALESCE(NULLIF(sqlc.arg(operating_system)::text, ''), operating_system),
	architecture = COALESCE(NULLIF(sqlc.arg(architecture)::text, ''), architecture), expanded_directory = $4,
	first_connected_at = COALESCE(first_connected_at, sqlc.arg(at)::timestamptz), last_connected_at = sqlc.arg(at)::timestamptz, disconnected_at = NULL, server_id = sqlc.arg(server_id)::uuid,
	startup_problem = '', startup_problem_at = NULL, subsystems = sqlc.arg(subsystems)::text[]
WHERE id = $1 AND token_hash IS NOT NULL;

-- name: AgentReturned :one
-- Records that an agent whose connection the database did not see end, and that describes itself as it did then, is connected to a server that
-- started since. Returns when the connection began, or no row.
UPDATE workspace_agents SET server_id = sqlc.arg(server_id)::uuid
WHERE id = $1 AND token_hash IS NOT NULL AND last_connected_at < sqlc.arg(started_at)::timestamptz AND disconnected_at IS NULL
	AND version = sqlc.arg(version) AND api_version = sqlc.arg(api_version) AND operating_system = sqlc.arg(operating_system)
	AND architecture = sqlc.arg(architecture) AND expanded_directory = sqlc.arg(expanded_directory) AND subsystems = sqlc.arg(subsystems)::text[]
RETURNING last_connected_at;

-- name: AgentDisconnected :execrows
-- Records that the connection to a server that began at the given time ended. A newer connection has another time, or is to another server.
UPDATE workspace_agents SET disconnected_at = sqlc.arg(at)::timestamptz
WHERE id = $1 AND last_connected_at = sqlc.arg(connected_at)::timestamptz AND server_id = sqlc.arg(server_id)::uuid AND disconnected_at IS NULL;

-- name: ListLostAgents :many
-- Returns the connected agents whose server is gone, and those of a server that are not connected to it.
SELECT id FROM workspace_agents a
WHERE last_connected_at IS NOT NULL AND disconnected_at IS NULL AND id <> ALL (sqlc.arg(connected)::uuid[])
	AND (server_id = sqlc.arg(server_id)::uuid OR NOT EXISTS (
		SELECT FROM servers s WHERE s.id = a.server_id AND s.beat_at > now() - make_interval(secs => sqlc.arg(life_seconds)::float8)));

-- name: SweepAgents :many
-- Marks those of the agents as disconnected that are still lost.
UPDATE workspace_agents a SET disconnected_at = sqlc.arg(at)::timestamptz
WHERE id = ANY (sqlc.arg(ids)::uuid[]) AND last_connected_at IS NOT NULL AND disconnected_at IS NULL AND id <> ALL (sqlc.arg(connected)::uuid[])
	AND (server_id = sqlc.arg(server_id)::uuid OR NOT EXISTS (
		SELECT FROM servers s WHERE s.id = a.server_id AND s.beat_at > now() - make_interval(secs => sqlc.arg(life_seconds)::float8)))
RETURNING id, workspace_id;

-- name: UpdateAgentLifecycle :execrows
-- Ignores a change that is older than the stored one. From "shutting_down" on, the states are final for the build.
UPDATE workspace_agents SET lifecycle_state = $2, lifecycle_changed_at = sqlc.arg(at)::timestamptz,
	started_at = CASE WHEN $2 = 'starting' THEN sqlc.arg(at)::timestamptz ELSE started_at END,
	ready_at = CASE WHEN $2 IN ('ready', 'start_error') THEN sqlc.arg(at)::timestamptz WHEN $2 = 'starting' THEN NULL ELSE ready_at END
WHERE id = $1 AND (lifecycle_changed_at IS NULL OR lifecycle_changed_at <= sqlc.arg(at)::timestamptz) AND lifecycle_state <> $2;

-- name: ListWorkspaceAgentIDs :many
-- Lists the agents of a workspace that have not ended.
SELECT id FROM workspace_agents WHERE workspace_id = $1 AND token_hash IS NOT NULL ORDER BY id;

-- name: RevokeAgents :many
-- Ends the agents of a workspace that its newest build did not keep, and invalidates their tokens. The next start admits those that got no return
-- token, because they were offline, with the one that they derive from their own.
UPDATE workspace_agents SET token_hash = NULL, return_token_hash = COALESCE(offline_token_hash, return_token_hash), offline_token_hash = NULL,
	disconnected_at = CASE WHEN last_connected_at IS NOT NULL THEN COALESCE(disconnected_at, now()) END,
	lifecycle_state = CASE WHEN lifecycle_state IN ('shutdown_timeout', 'shutdown_error') THEN lifecycle_state ELSE 'off' END,
	lifecycle_changed_at = now()
WHERE workspace_id = $1 AND id <> ALL (sqlc.arg(kept)::uuid[]) AND token_hash IS NOT NULL
RETURNING id;

-- name: NotifyAgentRevoked :exec
-- Makes servers end the agent's mesh access when the transaction commits.
SELECT pg_notify('agents_revoked', sqlc.arg(agent_id)::uuid::text);

-- name: NotifyAgentShutdown :exec
-- Makes the agent run its stop scripts when the transaction commits.
SELECT pg_notify('agents_shutdown', sqlc.arg(agent_id)::uuid::text);

-- name: NotifyAgentManifest :exec
-- Makes the agent request its manifest when the transaction commits.
SELECT pg_notify('agents_manifest', sqlc.arg(agent_id)::uuid::text);

-- name: UpdateAgentHello :execrows
-- Stores what a connected agent reports about itself once it has its manifest.
UPDATE workspace_agents SET expanded_directory = $2 WHERE id = $1 AND token_hash IS NOT NULL AND expanded_directory <> $2;

-- name: AwaitManifests :exec
-- Lets no user connect to the agents of a claimed workspace before they have the manifest of a build. Their start scripts have not run for it.
UPDATE workspace_agents SET awaited_build = sqlc.arg(build_number)::int, lifecycle_state = 'created', lifecycle_changed_at = NULL, started_at = NULL, ready_at = NULL
WHERE workspace_id = $1 AND token_hash IS NOT NULL;

-- name: TakeManifest :execrows
-- Records that an agent has the manifest of a build.
UPDATE workspace_agents SET awaited_build = NULL WHERE id = $1 AND awaited_build <= sqlc.arg(build_number)::int;

-- name: CountAwaited :one
-- Counts those of the agents that do not have the manifest that their new owner awaits.
SELECT count(*) FROM workspace_agents WHERE id = ANY (sqlc.arg(ids)::uuid[]) AND awaited_build IS NOT NULL AND token_hash IS NOT NULL;

-- name: NotifyAgent :exec
SELECT pg_notify('agent:' || sqlc.arg(agent_id)::uuid::text, sqlc.arg(agent_id)::uuid::text);

-- name: LockAgentLogs :one
-- Locks the agent. Take this lock before the log source's, as builds do.
SELECT workspace_id, logs_length, logs_overflowed FROM workspace_agents WHERE id = $1 AND token_hash IS NOT NULL FOR UPDATE;

-- name: LockLogSource :one
-- Locks a log source while lines are stored, so that its batches are stored one after another.
SELECT last_seq, head_bytes, tail_bytes, left_out, gap_id FROM workspace_agent_log_sources WHERE id = $1 AND agent_id = $2 FOR UPDATE;

-- name: InsertAgentLogs :exec
INSERT INTO workspace_agent_logs (agent_id, log_source_id, created_at, level, output, tail)
SELECT sqlc.arg(agent_id)::uuid, sqlc.arg(log_source_id)::uuid, unnest(sqlc.arg(created_at)::timestamptz[]), unnest(sqlc.arg(level)::text[]),
	unnest(sqlc.arg(output)::text[]), unnest(sqlc.arg(tail)::boolean[]);

-- name: ListOldTail :many
-- Lists the oldest lines of the tail of a source's log that must go so that at most keep bytes remain. A line counts with its text and
-- an overhead.
SELECT t.id, t.bytes::bigint AS bytes FROM (
	SELECT l.id, octet_length(l.output) + sqlc.arg(line_overhead)::bigint AS bytes,
		sum(octet_length(l.output) + sqlc.arg(line_overhead)::bigint) OVER (ORDER BY l.id DESC) AS kept
	FROM workspace_agent_logs l WHERE l.log_source_id = $1 AND l.tail
) t WHERE t.kept > sqlc.arg(keep)::bigint ORDER BY t.id;

-- name: DeleteAgentLogLines :exec
DELETE FROM workspace_agent_logs WHERE id = ANY (sqlc.arg(ids)::bigint[]);

-- name: SetLogGap :exec
-- Stores the line that reports what was left out, in the place of the first of those lines.
UPDATE workspace_agent_logs SET output = $2, level = 'warn', tail = false WHERE id = $1;

-- name: AdvanceLogSource :exec
UPDATE workspace_agent_log_sources SET last_seq = $2, head_bytes = $3, tail_bytes = $4, left_out = $5, gap_id = $6 WHERE id = $1;

-- name: AdvanceAgentLogs :exec
UPDATE workspace_agents SET logs_length = $2, logs_overflowed = $3 WHERE id = $1;

-- name: SetStartupProblem :execrows
-- Affects only a disconnected agent: a connected agent's own report is newer.
UPDATE workspace_agents SET startup_problem = $2, startup_problem_at = now()
WHERE id = $1 AND token_hash IS NOT NULL AND (last_connected_at IS NULL OR disconnected_at IS NOT NULL);

-- name: ListAgentLogsBefore :many
-- Lists lines between two ids, in the order in which they were stored.
SELECT * FROM workspace_agent_logs WHERE agent_id = $1 AND id > sqlc.arg(after)::bigint AND id < sqlc.arg(before)::bigint ORDER BY id LIMIT sqlc.arg(page_limit)::int;

-- name: FinishScript :execrows
UPDATE workspace_agent_scripts SET exit_code = $3, timed_out = $4, started_at = $5, ended_at = $6 WHERE id = $1 AND agent_id = $2;

-- name: UpdateAppHealth :many
-- Stores the health of those of an agent's apps that have a health check and whose health has changed.
UPDATE workspace_apps a SET health = c.health
FROM (SELECT unnest(sqlc.arg(ids)::uuid[]) AS id, unnest(sqlc.arg(healths)::text[]) AS health) c
WHERE a.id = c.id AND a.agent_id = sqlc.arg(agent_id)::uuid AND a.healthcheck_url <> '' AND a.health <> c.health
RETURNING a.id;

-- name: IsStartRunning :one
-- Reports whether any workspace is being started: its agent may connect before the build reports it.
SELECT EXISTS (SELECT 1 FROM workspace_builds wb JOIN provisioner_jobs j ON j.id = wb.job_id WHERE wb.transition = 'start' AND j.status = 'running');
