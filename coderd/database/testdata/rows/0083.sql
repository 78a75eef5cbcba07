INSERT INTO creation_keys (user_id, key_hash, request_id, request_hash, object_id) VALUES
('00000000-0000-4000-8000-000000000001', sha256('key'), '00000000-0000-4000-8000-000000000083', sha256('request'), '00000000-0000-4000-8000-000000000084');
