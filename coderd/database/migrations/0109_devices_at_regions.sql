-- +goose Up

-- The region whose gateway a device connects to; NULL: the servers'. The servers believe that region that the device came, so that its user names it
-- when the device is added (docs/decisions/0064-credentials-at-regions.md). Its configuration leads to no other gateway, so it goes with the region.
ALTER TABLE user_devices ADD COLUMN proxy_id uuid REFERENCES workspace_proxies ON DELETE CASCADE;
CREATE INDEX user_devices_proxy ON user_devices (proxy_id) WHERE proxy_id IS NOT NULL;

-- Where devices reach a proxy's WireGuard gateway, HOST:PORT; '' if it has none.
ALTER TABLE workspace_proxies ADD COLUMN wireguard_address text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
