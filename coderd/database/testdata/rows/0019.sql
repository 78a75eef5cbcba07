INSERT INTO user_links (user_id, login_type, issuer, subject, claims) VALUES
	('00000000-0000-4000-8000-000000000002', 'oidc', 'https://login.example.com', 'bob', '{"groups": ["staff"]}');
INSERT INTO one_time_passcodes (user_id, hash, expires_at) VALUES ('00000000-0000-4000-8000-000000000001', sha256('code'), now() + interval '1 hour');
