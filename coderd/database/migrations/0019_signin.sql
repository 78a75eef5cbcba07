-- +goose Up

-- Accounts that sign in at an identity provider. An older server shows these login types and refuses their passwords.
ALTER TABLE users DROP CONSTRAINT users_login_type_check,
	ADD CONSTRAINT users_login_type_check CHECK (login_type IN ('password', 'none', 'oidc', 'github'));

-- Which identity at a provider an account belongs to. The identity is issuer and subject, never the email address. Tokens are kept in
-- external_auth_links, under the provider "sign-in:" and the login type.
CREATE TABLE user_links (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	login_type text NOT NULL CHECK (login_type IN ('oidc', 'github')),
	issuer text NOT NULL CHECK (length(issuer) BETWEEN 1 AND 2048),
	subject text NOT NULL CHECK (length(subject) BETWEEN 1 AND 255),
	claims jsonb NOT NULL DEFAULT '{}', -- of the last sign-in: the ID token's, and over them those of the user info
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(), -- the last sign-in
	PRIMARY KEY (user_id, login_type),
	UNIQUE (login_type, issuer, subject)
);

-- Why the server ended a session, for its holder to read. Empty: the user ended it, or it expired.
ALTER TABLE api_keys ADD COLUMN end_reason text NOT NULL DEFAULT '';

-- Passcodes with which users set a new password, by a hash. Each is good for one use.
CREATE TABLE one_time_passcodes (
	user_id uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	hash bytea NOT NULL CHECK (length(hash) = 32),
	expires_at timestamptz NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now()
);

-- Whether the source names the access token of the owner's sign-in. Versions of before must be imported again to get it.
ALTER TABLE template_versions ADD COLUMN names_owner_oidc_access_token boolean NOT NULL DEFAULT false;

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
