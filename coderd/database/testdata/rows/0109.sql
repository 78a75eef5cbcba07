UPDATE workspace_proxies SET wireguard_address = 'tokyo.example.com:51820' WHERE id = '00000000-0000-4000-8000-000000000095';
INSERT INTO user_devices (id, user_id, name, public_key, expires_at, proxy_id) VALUES
('00000000-0000-4000-8000-000000000109', '00000000-0000-4000-8000-000000000001', 'traveller', sha256('tokyo'), now() + interval '90 days', '00000000-0000-4000-8000-000000000095');
