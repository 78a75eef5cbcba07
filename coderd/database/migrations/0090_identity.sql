-- +goose Up

-- For whom workspaces of a template get ID tokens, and its builds. The audiences of a template are printable and have no commas.
ALTER TABLE templates
	ADD COLUMN identity_audiences text[] NOT NULL DEFAULT '{}' CHECK (cardinality(identity_audiences) <= 16),
	ADD COLUMN identity_build_audience text NOT NULL DEFAULT '' CHECK (octet_length(identity_build_audience) <= 255);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
