INSERT INTO login_requests (id, secret_hash, user_code, host, program, address, network, expires_at)
	VALUES ('00000000-0000-4000-8000-000000000104', '\x00', 'BCDFGHJK', 'laptop', 'coder', '192.0.2.1', '192.0.2.1/32', now() + interval '10 minutes');
