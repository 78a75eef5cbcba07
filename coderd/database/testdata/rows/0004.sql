INSERT INTO workspace_host_keys (workspace_id, agent_name, private_key, public_key) VALUES
	('00000000-0000-4000-8000-000000000040', 'main', 'private', 'ssh-ed25519 AAAA');
