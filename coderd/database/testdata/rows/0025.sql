INSERT INTO user_secrets (id, user_id, name, env_name, sealed, size) VALUES
	('00000000-0000-4000-8000-000000000080', '00000000-0000-4000-8000-000000000001', 'npm', 'NPM_TOKEN', '\x0102', 2);
