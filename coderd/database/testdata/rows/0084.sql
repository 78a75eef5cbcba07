INSERT INTO user_ssh_keys (id, user_id, name, public_key, fingerprint)
SELECT '00000000-0000-4000-8000-000000000085', '00000000-0000-4000-8000-000000000001', 'laptop', key, 'SHA256:' || rtrim(encode(sha256(key), 'base64'), '=')
FROM (SELECT '\x0000000b7373682d6564323535313900000020'::bytea || sha256('key') AS key) made;
