INSERT INTO notification_messages (id, template_id, user_id, method, labels) VALUES
	('00000000-0000-4000-8000-000000000090', '00000000-0000-4000-8000-000000000091', '00000000-0000-4000-8000-000000000001', 'inbox', '{"workspace": "dev"}');
INSERT INTO inbox_notifications (id, user_id, template_id, title, content, content_plain) VALUES
	('00000000-0000-4000-8000-000000000090', '00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000091', 'Stopped', '**dev**', 'dev');
INSERT INTO notification_methods (template_id, method) VALUES ('00000000-0000-4000-8000-000000000091', 'smtp');
INSERT INTO notification_preferences (user_id, template_id, disabled) VALUES
	('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000091', true);
