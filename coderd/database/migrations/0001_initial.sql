-- +goose Up

-- Settings of this deployment: its id and its signing keys. Values are never shown.
CREATE TABLE settings (
	key text PRIMARY KEY,
	value bytea NOT NULL
);

CREATE TABLE organizations (
	id uuid PRIMARY KEY,
	name text NOT NULL UNIQUE,
	display_name text NOT NULL DEFAULT '',
	is_default boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX organizations_one_default ON organizations (is_default) WHERE is_default;

-- Every deployment has this organization from the start.
INSERT INTO settings (key, value) VALUES ('deployment_id', convert_to(gen_random_uuid()::text, 'UTF8'));
INSERT INTO organizations (id, name, display_name, is_default) VALUES (gen_random_uuid(), 'default', 'Default', true);

CREATE TABLE users (
	id uuid PRIMARY KEY,
	username text NOT NULL CHECK (username ~ '^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$' AND length(username) <= 32),
	email text NOT NULL CHECK (length(email) BETWEEN 3 AND 320),
	name text NOT NULL DEFAULT '',
	password_hash text NOT NULL DEFAULT '', -- argon2id in PHC form; empty: the user cannot sign in with a password
	login_type text NOT NULL DEFAULT 'password' CHECK (login_type IN ('password', 'none')),
	status text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'dormant', 'suspended')),
	roles text[] NOT NULL DEFAULT '{}' CHECK (roles <@ ARRAY['owner', 'template-admin']),
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	last_seen_at timestamptz,
	deleted_at timestamptz
);
CREATE UNIQUE INDEX users_username ON users (lower(username)) WHERE deleted_at IS NULL;
CREATE UNIQUE INDEX users_email ON users (lower(email)) WHERE deleted_at IS NULL;

CREATE TABLE api_keys (
	id text PRIMARY KEY CHECK (length(id) = 10), -- the public half of the token
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	secret_hash bytea NOT NULL CHECK (length(secret_hash) = 32), -- SHA-256 of the secret half
	name text NOT NULL DEFAULT '',
	kind text NOT NULL CHECK (kind IN ('session', 'token', 'workspace')),
	workspace_id uuid, -- for the kind workspace: the key ends with it
	lifetime_seconds bigint NOT NULL CHECK (lifetime_seconds > 0),
	created_at timestamptz NOT NULL DEFAULT now(),
	last_used_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz NOT NULL
);
CREATE INDEX api_keys_user ON api_keys (user_id);
CREATE UNIQUE INDEX api_keys_token_name ON api_keys (user_id, name) WHERE kind = 'token';

CREATE TABLE git_ssh_keys (
	user_id uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	private_key text NOT NULL,
	public_key text NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE files (
	id uuid PRIMARY KEY,
	sha256 text NOT NULL, -- hex, of data
	mimetype text NOT NULL,
	data bytea NOT NULL,
	created_by uuid NOT NULL REFERENCES users,
	created_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (sha256, created_by)
);

CREATE TABLE provisioner_daemons (
	id uuid PRIMARY KEY, -- also the mesh id
	organization_id uuid NOT NULL REFERENCES organizations,
	name text NOT NULL,
	version text NOT NULL DEFAULT '',
	tags jsonb NOT NULL DEFAULT '{}',
	built_in boolean NOT NULL DEFAULT false,
	created_at timestamptz NOT NULL DEFAULT now(),
	last_seen_at timestamptz, -- written when a session opens and ends, never per heartbeat
	online boolean NOT NULL DEFAULT false,
	UNIQUE (organization_id, name)
);

CREATE TABLE provisioner_jobs (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations,
	initiator_id uuid NOT NULL REFERENCES users,
	kind text NOT NULL CHECK (kind IN ('template_version_import', 'template_version_dry_run', 'workspace_build')),
	file_id uuid NOT NULL REFERENCES files,
	input jsonb NOT NULL DEFAULT '{}', -- what the kind needs in addition to its own row, such as a dry run's parameters
	tags jsonb NOT NULL DEFAULT '{}',
	priority smallint NOT NULL DEFAULT 0, -- lower first: 0 if a person waits, 1 for automatic jobs
	status text NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running', 'succeeded', 'canceling', 'canceled', 'failed')),
	error text NOT NULL DEFAULT '',
	error_code text NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now(),
	started_at timestamptz,
	canceled_at timestamptz,
	completed_at timestamptz,
	worker_id uuid REFERENCES provisioner_daemons ON DELETE SET NULL,
	epoch bigint NOT NULL DEFAULT 0, -- increases with every lease
	last_seq bigint NOT NULL DEFAULT 0, -- the last event applied in this epoch
	log_length bigint NOT NULL DEFAULT 0, -- bytes of stored log
	log_overflowed boolean NOT NULL DEFAULT false,
	CHECK ((status IN ('succeeded', 'canceled', 'failed')) = (completed_at IS NOT NULL)),
	CHECK (status <> 'running' OR started_at IS NOT NULL)
);
CREATE INDEX provisioner_jobs_pool ON provisioner_jobs (organization_id, tags, priority, created_at, id) WHERE status = 'pending';
CREATE INDEX provisioner_jobs_silent ON provisioner_jobs (created_at) WHERE status = 'pending' AND log_length = 0;
CREATE INDEX provisioner_jobs_done ON provisioner_jobs (worker_id, completed_at DESC) WHERE completed_at IS NOT NULL;
CREATE INDEX provisioner_jobs_worker ON provisioner_jobs (worker_id) WHERE completed_at IS NULL;
CREATE INDEX provisioner_jobs_recent ON provisioner_jobs (organization_id, created_at DESC);

CREATE TABLE provisioner_job_logs (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	created_at timestamptz NOT NULL,
	source text NOT NULL CHECK (source IN ('provisioner_daemon', 'provisioner')),
	level text NOT NULL CHECK (level IN ('trace', 'debug', 'info', 'warn', 'error')),
	stage text NOT NULL,
	output text NOT NULL
);
CREATE INDEX provisioner_job_logs_job ON provisioner_job_logs (job_id, id);

CREATE TABLE templates (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations,
	name text NOT NULL CHECK (name ~ '^[a-zA-Z0-9]+([_-][a-zA-Z0-9]+)*$' AND length(name) <= 32),
	display_name text NOT NULL DEFAULT '',
	description text NOT NULL DEFAULT '',
	icon text NOT NULL DEFAULT '',
	active_version_id uuid NOT NULL,
	default_ttl_seconds bigint NOT NULL DEFAULT 0,
	require_active_version boolean NOT NULL DEFAULT false,
	deprecated text NOT NULL DEFAULT '',
	created_by uuid NOT NULL REFERENCES users,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	deleted_at timestamptz
);
CREATE UNIQUE INDEX templates_name ON templates (organization_id, lower(name)) WHERE deleted_at IS NULL;

CREATE TABLE template_versions (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations,
	template_id uuid REFERENCES templates,
	job_id uuid NOT NULL UNIQUE REFERENCES provisioner_jobs,
	name text NOT NULL,
	message text NOT NULL DEFAULT '',
	readme text NOT NULL DEFAULT '',
	archived boolean NOT NULL DEFAULT false,
	names_owner_session_token boolean NOT NULL DEFAULT false,
	names_owner_ssh_private_key boolean NOT NULL DEFAULT false,
	created_by uuid NOT NULL REFERENCES users,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX template_versions_name ON template_versions (template_id, lower(name)) WHERE template_id IS NOT NULL;
ALTER TABLE templates ADD FOREIGN KEY (active_version_id) REFERENCES template_versions DEFERRABLE INITIALLY DEFERRED;

CREATE TABLE template_version_variables (
	template_version_id uuid NOT NULL REFERENCES template_versions ON DELETE CASCADE,
	name text NOT NULL,
	description text NOT NULL DEFAULT '',
	type text NOT NULL DEFAULT '',
	value text NOT NULL DEFAULT '',
	default_value text NOT NULL DEFAULT '',
	required boolean NOT NULL DEFAULT false,
	sensitive boolean NOT NULL DEFAULT false,
	PRIMARY KEY (template_version_id, name)
);

CREATE TABLE template_version_parameters (
	template_version_id uuid NOT NULL REFERENCES template_versions ON DELETE CASCADE,
	name text NOT NULL,
	position integer NOT NULL, -- the order of display: by coder_parameter.order, then by name
	definition jsonb NOT NULL, -- a TemplateVersionParameter of the public API
	PRIMARY KEY (template_version_id, name)
);

CREATE TABLE template_version_presets (
	id uuid PRIMARY KEY,
	template_version_id uuid NOT NULL REFERENCES template_versions ON DELETE CASCADE,
	name text NOT NULL,
	description text NOT NULL DEFAULT '',
	icon text NOT NULL DEFAULT '',
	is_default boolean NOT NULL DEFAULT false,
	parameters jsonb NOT NULL DEFAULT '[]', -- [{name, value}]
	UNIQUE (template_version_id, name)
);

CREATE TABLE template_version_external_auth (
	template_version_id uuid NOT NULL REFERENCES template_versions ON DELETE CASCADE,
	provider_id text NOT NULL,
	optional boolean NOT NULL DEFAULT false,
	PRIMARY KEY (template_version_id, provider_id)
);

CREATE TABLE template_version_tags (
	template_version_id uuid PRIMARY KEY REFERENCES template_versions ON DELETE CASCADE,
	tags jsonb NOT NULL -- the values of coder_workspace_tags at import, merged with the job's own tags
);

CREATE TABLE workspaces (
	id uuid PRIMARY KEY,
	organization_id uuid NOT NULL REFERENCES organizations,
	owner_id uuid NOT NULL REFERENCES users,
	template_id uuid NOT NULL REFERENCES templates,
	name text NOT NULL CHECK (name ~ '^[a-zA-Z0-9]+(-[a-zA-Z0-9]+)*$' AND length(name) <= 32),
	autostart_schedule text,
	ttl_seconds bigint,
	automatic_updates text NOT NULL DEFAULT 'never' CHECK (automatic_updates IN ('never', 'always')),
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	last_used_at timestamptz NOT NULL DEFAULT now(),
	deleted_at timestamptz
);
CREATE UNIQUE INDEX workspaces_name ON workspaces (owner_id, lower(name)) WHERE deleted_at IS NULL;
CREATE INDEX workspaces_template ON workspaces (template_id) WHERE deleted_at IS NULL;
ALTER TABLE api_keys ADD FOREIGN KEY (workspace_id) REFERENCES workspaces ON DELETE CASCADE;

CREATE TABLE workspace_favorites (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
	PRIMARY KEY (user_id, workspace_id)
);

CREATE TABLE workspace_builds (
	id uuid PRIMARY KEY,
	workspace_id uuid NOT NULL REFERENCES workspaces,
	build_number integer NOT NULL CHECK (build_number > 0),
	template_version_id uuid NOT NULL REFERENCES template_versions,
	job_id uuid NOT NULL UNIQUE REFERENCES provisioner_jobs,
	transition text NOT NULL CHECK (transition IN ('start', 'stop', 'delete')),
	reason text NOT NULL DEFAULT 'initiator',
	initiator_id uuid NOT NULL REFERENCES users,
	log_level text NOT NULL DEFAULT '' CHECK (log_level IN ('', 'debug')),
	state bytea NOT NULL DEFAULT '', -- Terraform's state, unchanged
	daily_cost integer NOT NULL DEFAULT 0,
	deadline timestamptz,
	max_deadline timestamptz,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	UNIQUE (workspace_id, build_number)
);
CREATE INDEX workspace_builds_version ON workspace_builds (template_version_id);

CREATE TABLE workspace_build_parameters (
	workspace_build_id uuid NOT NULL REFERENCES workspace_builds ON DELETE CASCADE,
	name text NOT NULL,
	value text NOT NULL,
	PRIMARY KEY (workspace_build_id, name)
);

CREATE TABLE workspace_resources (
	id uuid PRIMARY KEY,
	job_id uuid NOT NULL REFERENCES provisioner_jobs ON DELETE CASCADE,
	transition text NOT NULL CHECK (transition IN ('start', 'stop', 'delete')),
	type text NOT NULL,
	name text NOT NULL,
	icon text NOT NULL DEFAULT '',
	hide boolean NOT NULL DEFAULT false,
	daily_cost integer NOT NULL DEFAULT 0,
	instance_type text NOT NULL DEFAULT '',
	metadata jsonb NOT NULL DEFAULT '[]', -- [{key, value, sensitive}]
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX workspace_resources_job ON workspace_resources (job_id);

-- An agent keeps its id, which is the coder_agent's in Terraform's state, and thus its mesh address across a workspace's builds: each
-- start that contains the agent moves the row to its own resource and resets the states. The definition comes with the build; the
-- states change while the agent runs.
CREATE TABLE workspace_agents (
	id uuid PRIMARY KEY, -- also the mesh id
	resource_id uuid NOT NULL REFERENCES workspace_resources ON DELETE CASCADE,
	workspace_id uuid REFERENCES workspaces ON DELETE CASCADE, -- NULL: of an import or dry run, and never connects
	build_number integer NOT NULL DEFAULT 0,
	name text NOT NULL,
	token_hash bytea, -- SHA-256; NULL: never connects
	operating_system text NOT NULL DEFAULT '',
	architecture text NOT NULL DEFAULT '',
	directory text NOT NULL DEFAULT '',
	expanded_directory text NOT NULL DEFAULT '',
	environment jsonb NOT NULL DEFAULT '{}',
	startup_script_behavior text NOT NULL DEFAULT 'non-blocking' CHECK (startup_script_behavior IN ('blocking', 'non-blocking')),
	motd_file text NOT NULL DEFAULT '',
	troubleshooting_url text NOT NULL DEFAULT '',
	connection_timeout_seconds integer NOT NULL DEFAULT 120,
	display_apps text[] NOT NULL DEFAULT '{}',
	display_order integer NOT NULL DEFAULT 0,
	metadata jsonb NOT NULL DEFAULT '[]', -- what to run: [{key, display_name, script, interval, timeout}]
	version text NOT NULL DEFAULT '',
	api_version text NOT NULL DEFAULT '',
	ssh_host_key text NOT NULL DEFAULT '',
	created_at timestamptz NOT NULL DEFAULT now(),
	first_connected_at timestamptz,
	last_connected_at timestamptz, -- when the current or last connection began
	disconnected_at timestamptz,   -- when it ended; NULL while it lasts
	lifecycle_state text NOT NULL DEFAULT 'created' CHECK (lifecycle_state IN ('created', 'starting', 'start_timeout', 'start_error',
		'ready', 'shutting_down', 'shutdown_timeout', 'shutdown_error', 'off')),
	lifecycle_changed_at timestamptz,
	started_at timestamptz,
	ready_at timestamptz,
	logs_length bigint NOT NULL DEFAULT 0, -- bytes
	logs_overflowed boolean NOT NULL DEFAULT false
);
CREATE INDEX workspace_agents_resource ON workspace_agents (resource_id);
CREATE INDEX workspace_agents_workspace ON workspace_agents (workspace_id, build_number);
CREATE INDEX workspace_agents_token ON workspace_agents (token_hash) WHERE token_hash IS NOT NULL;

CREATE TABLE workspace_apps (
	id uuid PRIMARY KEY,
	agent_id uuid NOT NULL REFERENCES workspace_agents ON DELETE CASCADE,
	slug text NOT NULL,
	display_name text NOT NULL DEFAULT '',
	icon text NOT NULL DEFAULT '',
	command text NOT NULL DEFAULT '',
	url text NOT NULL DEFAULT '',
	external boolean NOT NULL DEFAULT false,
	subdomain boolean NOT NULL DEFAULT false,
	sharing_level text NOT NULL DEFAULT 'owner' CHECK (sharing_level IN ('owner', 'authenticated', 'organization', 'public')),
	healthcheck_url text NOT NULL DEFAULT '',
	healthcheck_interval integer NOT NULL DEFAULT 0,
	healthcheck_threshold integer NOT NULL DEFAULT 0,
	health text NOT NULL DEFAULT 'disabled' CHECK (health IN ('disabled', 'initializing', 'healthy', 'unhealthy')),
	hidden boolean NOT NULL DEFAULT false,
	display_order integer NOT NULL DEFAULT 0,
	display_group text NOT NULL DEFAULT '',
	open_in text NOT NULL DEFAULT 'slim-window',
	tooltip text NOT NULL DEFAULT '',
	UNIQUE (agent_id, slug)
);

CREATE TABLE workspace_agent_log_sources (
	id uuid PRIMARY KEY,
	agent_id uuid NOT NULL REFERENCES workspace_agents ON DELETE CASCADE,
	display_name text NOT NULL,
	icon text NOT NULL DEFAULT '',
	last_seq bigint NOT NULL DEFAULT 0, -- the last stored line
	created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX workspace_agent_log_sources_agent ON workspace_agent_log_sources (agent_id);

CREATE TABLE workspace_agent_scripts (
	id uuid PRIMARY KEY,
	agent_id uuid NOT NULL REFERENCES workspace_agents ON DELETE CASCADE,
	log_source_id uuid NOT NULL REFERENCES workspace_agent_log_sources ON DELETE CASCADE,
	display_name text NOT NULL DEFAULT '',
	script text NOT NULL,
	cron text NOT NULL DEFAULT '',
	log_path text NOT NULL DEFAULT '',
	start_blocks_login boolean NOT NULL DEFAULT false,
	run_on_start boolean NOT NULL DEFAULT false,
	run_on_stop boolean NOT NULL DEFAULT false,
	timeout_seconds integer NOT NULL DEFAULT 0,
	position integer NOT NULL DEFAULT 0,
	exit_code integer,
	timed_out boolean NOT NULL DEFAULT false,
	started_at timestamptz,
	ended_at timestamptz
);
CREATE INDEX workspace_agent_scripts_agent ON workspace_agent_scripts (agent_id);

CREATE TABLE workspace_agent_logs (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	agent_id uuid NOT NULL REFERENCES workspace_agents ON DELETE CASCADE,
	log_source_id uuid NOT NULL,
	created_at timestamptz NOT NULL,
	level text NOT NULL CHECK (level IN ('debug', 'info', 'warn', 'error')),
	output text NOT NULL
);
CREATE INDEX workspace_agent_logs_agent ON workspace_agent_logs (agent_id, id);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
