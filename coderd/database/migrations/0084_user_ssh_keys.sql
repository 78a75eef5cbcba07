-- +goose Up

-- Public keys with which users sign in over SSH. A key belongs to one user of the deployment, so that it tells who signs in.
CREATE TABLE user_ssh_keys (
	id uuid PRIMARY KEY,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	name text NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
	public_key bytea NOT NULL CHECK (octet_length(public_key) BETWEEN 1 AND 4096), -- in the wire format of SSH (RFC 4253, section 6.6)
	fingerprint text NOT NULL CHECK (fingerprint LIKE 'SHA256:%'),                -- of public_key, as ssh-keygen prints it
	created_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz,  -- NULL: never
	last_used_at timestamptz -- NULL: never used; to the minute
);
CREATE UNIQUE INDEX user_ssh_keys_name ON user_ssh_keys (user_id, name);
CREATE UNIQUE INDEX user_ssh_keys_fingerprint ON user_ssh_keys (fingerprint);

-- What a key's user has open is looked at again when the key is removed.
CREATE TRIGGER user_ssh_keys_revoked AFTER DELETE ON user_ssh_keys FOR EACH ROW
	WHEN (OLD.expires_at IS NULL OR OLD.expires_at > now()) EXECUTE FUNCTION api_keys_revoked();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
