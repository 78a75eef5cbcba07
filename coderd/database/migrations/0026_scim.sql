-- +goose Up

-- What an identity provider said of the users and groups that it provisions over SCIM. Such users sign in with OpenID Connect.
ALTER TABLE users DROP CONSTRAINT users_login_type_check,
	ADD CONSTRAINT users_login_type_check CHECK (login_type IN ('password', 'none', 'oidc', 'github'));

CREATE TABLE scim_users (
	user_id uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	user_name text NOT NULL CHECK (length(user_name) BETWEEN 1 AND 320),
	external_id text NOT NULL DEFAULT '',
	given_name text NOT NULL DEFAULT '',
	family_name text NOT NULL DEFAULT '',
	removed boolean NOT NULL DEFAULT false -- the provider deleted the user: the account is suspended, and the provider does not see it
);
CREATE UNIQUE INDEX scim_users_name ON scim_users (lower(user_name));

CREATE TABLE scim_groups (
	group_id uuid PRIMARY KEY REFERENCES groups ON DELETE CASCADE,
	external_id text NOT NULL DEFAULT ''
);

-- +goose Down
-- Nothing: an older server does not discard a newer server's data.
SELECT 1;
