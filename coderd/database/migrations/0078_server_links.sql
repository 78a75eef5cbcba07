-- +goose Up

-- How many other servers the server is linked to, so that one that is linked to none knows whether the others are. NULL: the server has not
-- said so, or its program does not know this column.
ALTER TABLE servers ADD COLUMN links integer;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
