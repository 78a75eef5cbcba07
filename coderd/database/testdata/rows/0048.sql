INSERT INTO region_visas (proxy_id, node_id, agent_id, expires_at) VALUES ('00000000-0000-4000-8000-000000000095', '00000000-0000-4000-8000-000000000096', '00000000-0000-4000-8000-000000000097', now());
INSERT INTO app_codes (hash, expires_at) VALUES (sha256('code'), now());
