-- +goose Up

-- At which regions a public SSH key may sign in. Without a row, none: the servers believe a region that says that the key's holder came.
CREATE TABLE user_ssh_key_regions (
	key_id uuid NOT NULL REFERENCES user_ssh_keys ON DELETE CASCADE,
	proxy_id uuid NOT NULL REFERENCES workspace_proxies ON DELETE CASCADE,
	PRIMARY KEY (key_id, proxy_id)
);
CREATE INDEX user_ssh_key_regions_proxy ON user_ssh_key_regions (proxy_id);

-- What a key's user has open is looked at again when a region is taken from the key. A key that is removed says so on its own.
-- +goose StatementBegin
CREATE FUNCTION user_ssh_key_regions_revoked() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('users_revoked', k.user_id::text) FROM user_ssh_keys k WHERE k.id = OLD.key_id;
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER user_ssh_key_regions_revoked AFTER DELETE ON user_ssh_key_regions FOR EACH ROW EXECUTE FUNCTION user_ssh_key_regions_revoked();

-- Where users reach a proxy's SSH gateway, HOST:PORT; '' if it has none.
ALTER TABLE workspace_proxies ADD COLUMN ssh_address text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
