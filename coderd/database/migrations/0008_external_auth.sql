-- +goose Up

-- What a user has linked elsewhere, such as an account at a git host: one link per provider of the server's configuration. The tokens
-- are encrypted with the keys that Terraform's states are encrypted with, which are not in the database.
CREATE TABLE external_auth_links (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	provider_id text NOT NULL,
	tokens bytea NOT NULL,
	refreshable boolean NOT NULL, -- tokens has one to get new ones with
	expires_at timestamptz,       -- of the access token; null: never, as far as the provider says
	failure text NOT NULL DEFAULT '', -- why the link is of no use any more; empty: it is
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(), -- when tokens was last changed
	PRIMARY KEY (user_id, provider_id),
	CHECK (length(tokens) > 0),
	CHECK (length(provider_id) BETWEEN 1 AND 64)
);

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
