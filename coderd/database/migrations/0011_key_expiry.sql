-- +goose Up

-- A key that is made to end earlier is as good as deleted, and what a workspace's key has open ends with it too.
DROP TRIGGER api_keys_revoked ON api_keys;
CREATE TRIGGER api_keys_revoked AFTER DELETE ON api_keys FOR EACH ROW
	WHEN (OLD.expires_at > now()) EXECUTE FUNCTION api_keys_revoked();
CREATE TRIGGER api_keys_shortened AFTER UPDATE OF expires_at ON api_keys FOR EACH ROW
	WHEN (NEW.expires_at < OLD.expires_at) EXECUTE FUNCTION api_keys_revoked();

-- Servers wait for the next key that expires.
CREATE INDEX api_keys_expires_at ON api_keys (expires_at);

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
