INSERT INTO user_ssh_key_regions (key_id, proxy_id) VALUES ('00000000-0000-4000-8000-000000000085', '00000000-0000-4000-8000-000000000095');
UPDATE workspace_proxies SET ssh_address = 'tokyo.example.com:2222' WHERE id = '00000000-0000-4000-8000-000000000095';
