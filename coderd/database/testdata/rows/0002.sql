INSERT INTO provisioner_keys (id, organization_id, name, tags, secret_hash, created_by)
	SELECT '00000000-0000-4000-8000-000000000050', id, 'berlin', '{"zone": "b"}', sha256('key'), '00000000-0000-4000-8000-000000000001' FROM organizations;
UPDATE provisioner_daemons SET key_id = '00000000-0000-4000-8000-000000000050', key_name = 'berlin';
