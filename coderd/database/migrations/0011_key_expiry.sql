-- +goose Up

-- Shortening a key's life has the effect of deleting it, and a workspace's key also ends what it has open.
DROP TRIGGER api_keys_revoked ON api_keys;
CREATE TRIGGER api_keys_revoked AFTER DELETE ON api_keys FOR EACH ROW
	WHEN (OLD.expires_at > now()) EXECUTE FUNCTION api_keys_revoked();
CREATE TRIGGER api_keys_shortened AFTER UPDATE OF expires_at ON api_keys FOR EACH ROW
	WHEN (NEW.expires_at < OLD.expires_at) EXECUTE FUNCTION api_keys_revoked();

-- Servers look for the next key to expire.
CREATE INDEX api_keys_expires_at ON api_keys (expires_at);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
