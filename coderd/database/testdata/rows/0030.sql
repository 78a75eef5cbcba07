INSERT INTO idp_sync (kind, settings) VALUES ('organization', '{"field": "groups"}');
