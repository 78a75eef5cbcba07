-- +goose Up

-- Where a session or token was last used: the program, as it calls itself, and the address. Empty until then, and for what a server of an
-- earlier release recorded.
ALTER TABLE api_keys ADD COLUMN user_agent text NOT NULL DEFAULT '', ADD COLUMN address text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
