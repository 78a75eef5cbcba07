INSERT INTO workspace_port_shares (workspace_id, agent_name, port, share_level, protocol) VALUES
	('00000000-0000-4000-8000-000000000040', 'main', 8080, 'organization', 'http');
