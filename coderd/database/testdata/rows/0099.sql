INSERT INTO lifecycle_events (sequence, type, kind, subject, data)
	VALUES (nextval('lifecycle_events_sequence'), 'user.created', 'user', '00000000-0000-4000-8000-000000000099', '{"username": "grace"}');
INSERT INTO webhooks (id, name, origin, sealed, events, format) VALUES ('00000000-0000-4000-8000-000000000099', 'ci', 'https://ci.example.com', '\x00', '{*}', 'standard');
INSERT INTO webhook_deliveries (webhook_id, event_id, subject) SELECT '00000000-0000-4000-8000-000000000099', id, subject FROM lifecycle_events ORDER BY id DESC LIMIT 1;
