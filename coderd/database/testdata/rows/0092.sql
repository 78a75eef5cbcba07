INSERT INTO api_keys (id, user_id, secret_hash, kind, lifetime_seconds, expires_at, user_agent, address)
VALUES ('seen012345', '00000000-0000-4000-8000-000000000001', sha256('seen'), 'session', 3600, now() + interval '1 hour', 'coder/v2.31.10001', '192.0.2.1');
