-- +goose Up

-- Which server's gateway saw a device last: the URL of the server, so that the process that comes after it at this URL begins new sessions with its
-- devices, and no other server does. NULL: a server of an earlier release saw it, or none did.
ALTER TABLE user_devices ADD COLUMN gateway text CHECK (length(gateway) BETWEEN 1 AND 2048);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
