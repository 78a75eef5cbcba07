INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, path, bytes_in)
	SELECT '00000000-0000-4000-8000-000000000071', now(), now(), id, '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000040', 'dev',
		'00000000-0000-4000-8000-000000000043', 'main', 'ssh', 'direct', 42 FROM organizations;
