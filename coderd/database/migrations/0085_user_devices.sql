-- +goose Up

-- Devices with a WireGuard app, such as phones. A key belongs to one device of the deployment, so that it tells whose device connects.
CREATE TABLE user_devices (
	id uuid PRIMARY KEY, -- the device's address in the mesh follows from it
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	name text NOT NULL CHECK (length(name) BETWEEN 1 AND 64),
	public_key bytea NOT NULL CHECK (octet_length(public_key) = 32), -- of Curve25519
	created_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz NOT NULL,
	last_used_at timestamptz, -- NULL: never used
	endpoint text CHECK (length(endpoint) BETWEEN 1 AND 128), -- ADDRESS:PORT at which a gateway saw it last; NULL: nowhere
	endpoint_at timestamptz, -- when that was
	CHECK ((endpoint IS NULL) = (endpoint_at IS NULL))
);
CREATE UNIQUE INDEX user_devices_name ON user_devices (user_id, name);
CREATE UNIQUE INDEX user_devices_public_key ON user_devices (public_key);
CREATE INDEX user_devices_endpoint ON user_devices (endpoint) WHERE endpoint IS NOT NULL;

-- Every server learns whose devices changed, so that gateways know at once who may connect. That a device was seen is no such change.
-- +goose StatementBegin
CREATE FUNCTION user_devices_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('user_devices', coalesce(NEW.user_id, OLD.user_id)::text);
	RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER user_devices_changed AFTER INSERT OR DELETE OR UPDATE OF user_id, name, public_key, expires_at ON user_devices FOR EACH ROW
	EXECUTE FUNCTION user_devices_changed();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
