INSERT INTO user_devices (id, user_id, name, public_key, expires_at, endpoint, endpoint_at) VALUES
('00000000-0000-4000-8000-000000000086', '00000000-0000-4000-8000-000000000001', 'phone', sha256('key'), now() + interval '90 days', '192.0.2.1:51820', now());
