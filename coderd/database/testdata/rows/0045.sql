INSERT INTO workspace_proxies (id, name, token_hash, url) VALUES ('00000000-0000-4000-8000-000000000095', 'tokyo', sha256('proxy'), 'https://tokyo.example.com');
