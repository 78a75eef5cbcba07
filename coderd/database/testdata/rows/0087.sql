INSERT INTO notification_preferences (user_id, template_id, disabled)
VALUES ('00000000-0000-4000-8000-000000000001', '4e19c0ac-94e1-4532-9515-d1801aa283b2', true);
