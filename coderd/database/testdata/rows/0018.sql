INSERT INTO organization_roles (organization_id, name, powers) SELECT id, 'reviewer', '[{"resource": "template", "action": "read"}]' FROM organizations;
INSERT INTO groups (id, organization_id, name, quota_allowance) SELECT '00000000-0000-4000-8000-000000000060', id, 'staff', 5 FROM organizations;
INSERT INTO group_members (group_id, user_id) VALUES ('00000000-0000-4000-8000-000000000060', '00000000-0000-4000-8000-000000000002');
UPDATE workspaces SET sharing = '{"00000000-0000-4000-8000-000000000002": "use"}';
