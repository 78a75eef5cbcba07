INSERT INTO prebuilt_workspaces (workspace_id) VALUES ('00000000-0000-4000-8000-000000000040');
