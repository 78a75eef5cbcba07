-- A plan of the workspace's update.
INSERT INTO provisioner_jobs (id, organization_id, initiator_id, kind, file_id, input, status, started_at, completed_at, worker_id, epoch)
	SELECT '00000000-0000-4000-8000-000000000126', id, '00000000-0000-4000-8000-000000000001', 'template_version_dry_run', '00000000-0000-4000-8000-000000000010',
		'{"template_version_id": "00000000-0000-4000-8000-000000000030", "workspace_id": "00000000-0000-4000-8000-000000000040", "parameters": []}', 'succeeded', now(), now(), '00000000-0000-4000-8000-000000000011', 1
	FROM organizations WHERE is_default;
INSERT INTO workspace_plans (job_id, workspace_id, changes) VALUES
	('00000000-0000-4000-8000-000000000126', '00000000-0000-4000-8000-000000000040', '[{"address": "docker_volume.home", "type": "docker_volume", "name": "home", "action": "replace", "attributes": ["name"], "loses_data": true}]');
