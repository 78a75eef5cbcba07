-- A user with a template, a running workspace and an agent, as the first release stored them. The password is Correct-Horse-9-Battery.
INSERT INTO users (id, username, email, name, password_hash, roles) VALUES
	('00000000-0000-4000-8000-000000000001', 'ann', 'ann@example.com', 'Ann', '$argon2id$v=19$m=19456,t=2,p=1$b2YgYSBmaXJzdCB1c2VyLg$AZSZ9G78mzEB9vbGRd6zLqr2AuO7GC73Jyz7B2fNC44', '{owner}'),
	('00000000-0000-4000-8000-000000000002', 'bob', 'bob@example.com', 'Bob', '', '{}');
INSERT INTO git_ssh_keys (user_id, private_key, public_key) VALUES ('00000000-0000-4000-8000-000000000001', 'private', 'ssh-ed25519 AAAA');
INSERT INTO files (id, sha256, mimetype, data, created_by) VALUES
	('00000000-0000-4000-8000-000000000010', 'abc', 'application/x-tar', '\x00ff', '00000000-0000-4000-8000-000000000001');
INSERT INTO provisioner_daemons (id, organization_id, name, tags) SELECT '00000000-0000-4000-8000-000000000011', id, 'builder', '{"scope": "organization"}' FROM organizations;
INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, status, started_at, completed_at, worker_id, epoch)
	SELECT v.id::uuid, o.id, '00000000-0000-4000-8000-000000000001', v.kind, '00000000-0000-4000-8000-000000000010', 'succeeded', now(), now(), '00000000-0000-4000-8000-000000000011', 1
	FROM organizations o, (VALUES ('00000000-0000-4000-8000-000000000020', 'template_version_import'), ('00000000-0000-4000-8000-000000000021', 'workspace_build')) v (id, kind);
INSERT INTO provisioner_job_logs (job_id, created_at, source, level, stage, output) VALUES
	('00000000-0000-4000-8000-000000000021', now(), 'provisioner', 'info', 'Starting workspace', 'Apply complete! Resources: 1 added');
INSERT INTO template_versions (id, organization_id, job_id, name, readme, created_by)
	SELECT '00000000-0000-4000-8000-000000000030', id, '00000000-0000-4000-8000-000000000020', 'first', '# Template', '00000000-0000-4000-8000-000000000001' FROM organizations;
INSERT INTO templates (id, organization_id, name, active_version_id, created_by)
	SELECT '00000000-0000-4000-8000-000000000031', id, 'docker', '00000000-0000-4000-8000-000000000030', '00000000-0000-4000-8000-000000000001' FROM organizations;
UPDATE template_versions SET template_id = '00000000-0000-4000-8000-000000000031';
INSERT INTO template_version_variables (template_version_id, name, type, value) VALUES ('00000000-0000-4000-8000-000000000030', 'image', 'string', 'debian');
INSERT INTO template_version_parameters (template_version_id, name, position, definition) VALUES
	('00000000-0000-4000-8000-000000000030', 'cpu', 0, '{"name": "cpu", "type": "number", "default_value": "2"}');
INSERT INTO template_version_presets (id, template_version_id, name, parameters) VALUES
	('00000000-0000-4000-8000-000000000032', '00000000-0000-4000-8000-000000000030', 'large', '[{"name": "cpu", "value": "8"}]');
INSERT INTO template_version_external_auth (template_version_id, provider_id) VALUES ('00000000-0000-4000-8000-000000000030', 'github');
INSERT INTO template_version_tags (template_version_id, tags) VALUES ('00000000-0000-4000-8000-000000000030', '{"zone": "a"}');
INSERT INTO workspaces (id, organization_id, owner_id, template_id, name, autostart_schedule, ttl_seconds)
	SELECT '00000000-0000-4000-8000-000000000040', id, '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000031', 'dev', 'CRON_TZ=UTC 0 9 * * 1-5', 28800 FROM organizations;
INSERT INTO api_keys (id, user_id, secret_hash, name, kind, lifetime_seconds, expires_at) VALUES
	('aaaaaaaaaa', '00000000-0000-4000-8000-000000000001', sha256('0123456789abcdefghijkl'), 'ci', 'token', 86400, now() + interval '1 year');
INSERT INTO workspace_favorites (user_id, workspace_id) VALUES ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000040');
INSERT INTO workspace_builds (id, workspace_id, build_number, template_version_id, job_id, transition, initiator_id, state) VALUES
	('00000000-0000-4000-8000-000000000041', '00000000-0000-4000-8000-000000000040', 1, '00000000-0000-4000-8000-000000000030', '00000000-0000-4000-8000-000000000021', 'start',
		'00000000-0000-4000-8000-000000000001', '{"version": 4}');
INSERT INTO workspace_build_parameters (workspace_build_id, name, value) VALUES ('00000000-0000-4000-8000-000000000041', 'cpu', '4');
INSERT INTO workspace_resources (id, job_id, transition, type, name) VALUES
	('00000000-0000-4000-8000-000000000042', '00000000-0000-4000-8000-000000000021', 'start', 'docker_container', 'workspace');
INSERT INTO workspace_agents (id, resource_id, workspace_id, build_number, name, token_hash, lifecycle_state, ssh_host_key) VALUES
	('00000000-0000-4000-8000-000000000043', '00000000-0000-4000-8000-000000000042', '00000000-0000-4000-8000-000000000040', 1, 'main', sha256('token'), 'ready', 'ssh-ed25519 AAAA');
INSERT INTO workspace_apps (id, agent_id, slug, url) VALUES ('00000000-0000-4000-8000-000000000044', '00000000-0000-4000-8000-000000000043', 'code', 'http://127.0.0.1:8080');
INSERT INTO workspace_agent_log_sources (id, agent_id, display_name) VALUES ('00000000-0000-4000-8000-000000000045', '00000000-0000-4000-8000-000000000043', 'Startup');
INSERT INTO workspace_agent_scripts (id, agent_id, log_source_id, script, run_on_start) VALUES
	('00000000-0000-4000-8000-000000000046', '00000000-0000-4000-8000-000000000043', '00000000-0000-4000-8000-000000000045', 'echo ready', true);
INSERT INTO workspace_agent_logs (agent_id, log_source_id, created_at, level, output) VALUES
	('00000000-0000-4000-8000-000000000043', '00000000-0000-4000-8000-000000000045', now(), 'info', 'ready');
