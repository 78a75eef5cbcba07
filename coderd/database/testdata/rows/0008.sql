INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable) VALUES ('00000000-0000-4000-8000-000000000001', 'github', '\x01', true);
