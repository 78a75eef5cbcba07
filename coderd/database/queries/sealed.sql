-- Values that are encrypted with the state keys (coderd/keyring). The first 13 bytes of a value, its header, name its key.

-- name: CountSealed :many
-- Counts the values of each kind by their header. Values of older releases that are not encrypted have another one, or none.
SELECT 'states'::text AS kind, (CASE WHEN state_key = '' THEN ''::bytea ELSE '\x00636d7301'::bytea || state_key END)::bytea AS header, count(*) AS number
FROM workspace_builds WHERE state <> '' GROUP BY state_key
UNION ALL SELECT 'pieces of states', substring(data FROM 1 FOR 13), count(*) FROM provisioner_job_state_pieces GROUP BY 2
UNION ALL SELECT 'external logins', substring(tokens FROM 1 FOR 13), count(*) FROM external_auth_links GROUP BY 2
UNION ALL SELECT 'user secrets', substring(sealed FROM 1 FOR 13), count(*) FROM user_secrets GROUP BY 2
UNION ALL SELECT 'SSH keys', substring(sealed FROM 1 FOR 13), count(*) FROM git_ssh_keys GROUP BY 2
UNION ALL SELECT 'SSH host keys', substring(value FROM 1 FOR 13), count(*) FROM settings WHERE key IN ('ssh_host_seed', 'ssh_user_ca', 'ssh_host_ca') GROUP BY 2
UNION ALL SELECT 'identity keys', substring(value FROM 1 FOR 13), count(*) FROM settings WHERE key = 'identity_keys' GROUP BY 2
UNION ALL SELECT 'ACME data', substring(value FROM 1 FOR 13), count(*) FROM settings WHERE starts_with(key, 'acme:') GROUP BY 2;

-- name: HasWebhooks :one
-- Reports whether the schema has webhooks: one of an earlier release, of which a backup is made, has none.
SELECT (to_regclass('webhooks') IS NOT NULL)::bool;

-- name: CountSealedWebhooks :many
-- Counts the values of webhooks by their header.
SELECT substring(sealed FROM 1 FOR 13)::bytea AS header, count(*) AS number FROM webhooks GROUP BY 1;

-- name: ListSealedUnder :many
-- Names what is encrypted under some headers: external logins and secrets of users, users with an SSH key, ACME data, and workspaces whose
-- latest state it is.
SELECT 'external logins'::text AS kind, u.username AS owner, l.provider_id AS name FROM external_auth_links l JOIN users u ON u.id = l.user_id
WHERE substring(l.tokens FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[])
UNION ALL SELECT 'user secrets', u.username, s.name FROM user_secrets s JOIN users u ON u.id = s.user_id
WHERE substring(s.sealed FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[])
UNION ALL SELECT 'SSH keys', u.username, '' FROM git_ssh_keys k JOIN users u ON u.id = k.user_id
WHERE substring(k.sealed FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[])
UNION ALL SELECT 'ACME data', '', substring(key FROM 6) FROM settings
WHERE starts_with(key, 'acme:') AND substring(value FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[])
UNION ALL SELECT 'states', u.username, w.name FROM workspaces w JOIN users u ON u.id = w.owner_id JOIN workspace_builds b ON b.id = w.latest_build_id
WHERE w.deleted_at IS NULL AND b.state <> '' AND '\x00636d7301'::bytea || b.state_key = ANY (sqlc.arg(headers)::bytea[])
ORDER BY 1, 2, 3;

-- name: ListStatesNotUnder :many
-- Lists builds after one whose state is not encrypted with the given key.
SELECT id FROM workspace_builds WHERE state <> '' AND state_key <> sqlc.arg(state_key)::bytea AND id > sqlc.arg(after)::uuid ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: LockBuildState :one
SELECT workspace_id, state FROM workspace_builds WHERE id = $1 FOR UPDATE;

-- name: ReencryptBuildState :exec
-- Stores the same state, re-encrypted. This does not count as a change of the build.
UPDATE workspace_builds SET state = $2 WHERE id = $1;

-- name: ListStatePiecesNotUnder :many
-- Lists pieces after one that are not encrypted under the given header.
SELECT job_id, first_byte FROM provisioner_job_state_pieces
WHERE substring(data FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND (job_id, first_byte) > (sqlc.arg(after_job)::uuid, sqlc.arg(after_byte)::bigint)
ORDER BY job_id, first_byte LIMIT sqlc.arg(max_rows);

-- name: LockStatePiece :one
SELECT b.workspace_id, p.data FROM provisioner_job_state_pieces p JOIN workspace_builds b ON b.job_id = p.job_id
WHERE p.job_id = $1 AND p.first_byte = $2 FOR UPDATE OF p;

-- name: ReencryptStatePiece :exec
-- Stores the same piece, re-encrypted.
UPDATE provisioner_job_state_pieces SET data = $3 WHERE job_id = $1 AND first_byte = $2;

-- name: ListExternalAuthLinksNotUnder :many
-- Lists links after one whose tokens are not encrypted under the given header.
SELECT user_id, provider_id, tokens FROM external_auth_links
WHERE substring(tokens FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND (user_id, provider_id) > (sqlc.arg(after_user)::uuid, sqlc.arg(after_provider)::text)
ORDER BY user_id, provider_id LIMIT sqlc.arg(max_rows);

-- name: ReencryptExternalAuthLink :execrows
-- Stores the same tokens, re-encrypted, unless they have changed meanwhile.
UPDATE external_auth_links SET tokens = sqlc.arg(sealed)::bytea WHERE user_id = $1 AND provider_id = $2 AND tokens = sqlc.arg(before)::bytea;

-- name: ListUserSecretsNotUnder :many
-- Lists secrets after one whose value is not encrypted under the given header.
SELECT id, user_id, sealed FROM user_secrets
WHERE substring(sealed FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND id > sqlc.arg(after)::uuid ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: ReencryptUserSecret :execrows
-- Stores the same value, re-encrypted, unless it has changed meanwhile.
UPDATE user_secrets SET sealed = sqlc.arg(sealed)::bytea WHERE id = $1 AND sealed = sqlc.arg(before)::bytea;

-- name: ListWebhooksNotUnder :many
-- Lists webhooks after one whose URL and secret are not encrypted under the given header.
SELECT id, sealed FROM webhooks
WHERE substring(sealed FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND id > sqlc.arg(after)::uuid ORDER BY id LIMIT sqlc.arg(max_rows);

-- name: ReencryptWebhook :execrows
-- Stores the same URL and secret, re-encrypted, unless they have changed meanwhile.
UPDATE webhooks SET sealed = sqlc.arg(sealed)::bytea WHERE id = $1 AND sealed = sqlc.arg(before)::bytea;

-- name: ListGitSSHKeysNotUnder :many
-- Lists keys after a user's whose private half is not encrypted under the given header.
SELECT user_id, private_key, sealed FROM git_ssh_keys
WHERE substring(sealed FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND user_id > sqlc.arg(after)::uuid ORDER BY user_id LIMIT sqlc.arg(max_rows);

-- name: ReencryptGitSSHKey :execrows
-- Stores the same key, re-encrypted, unless it has changed meanwhile. This does not count as a change for its user.
UPDATE git_ssh_keys SET private_key = '', sealed = sqlc.arg(sealed)::bytea WHERE user_id = $1 AND sealed = sqlc.arg(before)::bytea;

-- name: ListACMEDataNotUnder :many
-- Lists ACME's data after a name that is not encrypted under the given header.
SELECT substring(key FROM 6)::text AS name, value FROM settings
WHERE starts_with(key, 'acme:') AND substring(value FROM 1 FOR 13) <> sqlc.arg(header)::bytea AND key > 'acme:' || sqlc.arg(after)::text
ORDER BY key LIMIT sqlc.arg(max_rows);

-- name: ReencryptACMEData :execrows
-- Stores the same data, re-encrypted, unless it has changed meanwhile.
UPDATE settings SET value = sqlc.arg(sealed)::bytea WHERE key = 'acme:' || sqlc.arg(name)::text AND value = sqlc.arg(before)::bytea;

-- name: ListForgottenStateKeys :many
-- Lists the ids of keys that the server may lack.
SELECT key_id FROM forgotten_state_keys;

-- name: ForgetStateKeys :exec
-- Records that the server may lack these keys from now on.
INSERT INTO forgotten_state_keys (key_id) SELECT unnest(sqlc.arg(ids)::bytea[]) ON CONFLICT DO NOTHING;

-- name: EndLostSignIns :exec
-- Ends the sessions of users whose identity provider the server can no longer ask, because the tokens of their sign-in are under some headers.
-- A trigger tells every server.
UPDATE api_keys k SET expires_at = now(), end_reason = sqlc.arg(end_reason)
FROM external_auth_links l JOIN users u ON u.id = l.user_id
WHERE k.user_id = l.user_id AND k.kind = 'session' AND k.expires_at > now() AND l.provider_id = 'sign-in:' || u.login_type
	AND substring(l.tokens FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);

-- name: DeleteExternalAuthLinksUnder :exec
DELETE FROM external_auth_links WHERE substring(tokens FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);

-- name: DeleteGitSSHKeysUnder :exec
DELETE FROM git_ssh_keys WHERE substring(sealed FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);

-- name: DeleteSettingsUnder :exec
DELETE FROM settings WHERE key IN ('ssh_host_seed', 'ssh_user_ca', 'ssh_host_ca', 'identity_keys') AND substring(value FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);

-- name: DeleteACMEDataUnder :exec
DELETE FROM settings WHERE starts_with(key, 'acme:') AND substring(value FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);

-- name: DeleteStatePiecesUnder :exec
DELETE FROM provisioner_job_state_pieces WHERE substring(data FROM 1 FOR 13) = ANY (sqlc.arg(headers)::bytea[]);
