-- +goose Up

-- What a token may do of what its user may do. Null: everything, on every object. A server that does not know these columns refuses the
-- token, because the hash of a limited token's secret is made in another way (coderd/users/tokens.go).
ALTER TABLE api_keys ADD COLUMN scopes text[], ADD COLUMN allow_list text[];

-- +goose Down
-- Nothing: an older server does not discard a newer server's data.
SELECT 1;
