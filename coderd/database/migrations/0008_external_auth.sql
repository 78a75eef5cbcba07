-- +goose Up

-- Accounts of users at other services, such as a Git host: one link for each provider in the server's configuration. The tokens are
-- encrypted with the same keys as Terraform's states, which are not in the database.
CREATE TABLE external_auth_links (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	provider_id text NOT NULL,
	tokens bytea NOT NULL,
	refreshable boolean NOT NULL, -- tokens contains a refresh token
	expires_at timestamptz,       -- when the access token expires; null: the provider gave no time
	failure text NOT NULL DEFAULT '', -- why the link no longer works; empty: it works
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(), -- when tokens last changed
	PRIMARY KEY (user_id, provider_id),
	CHECK (length(tokens) > 0),
	CHECK (length(provider_id) BETWEEN 1 AND 64)
);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
