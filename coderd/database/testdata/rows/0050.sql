INSERT INTO user_preferences (user_id, preferences) VALUES ('00000000-0000-4000-8000-000000000001', '{"workspace_columns": ["status"]}');
