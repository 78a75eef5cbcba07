INSERT INTO organization_invitations (organization_id, user_id, invited_by, expires_at)
SELECT id, '00000000-0000-4000-8000-000000000002', '00000000-0000-4000-8000-000000000001', '2030-01-01T00:00:00Z' FROM organizations ORDER BY name LIMIT 1;
