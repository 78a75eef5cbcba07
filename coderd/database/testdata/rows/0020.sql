INSERT INTO audit_logs (id, user_id, actor, action, resource_type, resource_id, resource_target, diff, status_code) VALUES
	('00000000-0000-7000-8000-000000000070', '00000000-0000-4000-8000-000000000001', 'ann', 'create', 'workspace', '00000000-0000-4000-8000-000000000040', 'dev', '{"name": {"old": "", "new": "dev"}}', 201);
