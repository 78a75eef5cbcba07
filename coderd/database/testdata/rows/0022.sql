INSERT INTO user_quiet_hours (user_id, schedule) VALUES ('00000000-0000-4000-8000-000000000001', 'CRON_TZ=Europe/Berlin 0 2 * * *');
UPDATE template_policies SET dormant_ms = 604800000;
INSERT INTO workspace_announcements (workspace_id, event, due_at) VALUES ('00000000-0000-4000-8000-000000000040', 'autostop', now());
