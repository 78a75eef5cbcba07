INSERT INTO servers (id, beat_at) VALUES ('00000000-0000-4000-8000-000000000051', now() - interval '1 day');
