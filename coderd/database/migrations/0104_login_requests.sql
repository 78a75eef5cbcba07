-- +goose Up

-- Programs on machines without a browser that wait for a user to sign them in with a code (coderd/users/logindevice.go).
CREATE TABLE login_requests (
	id uuid PRIMARY KEY,
	secret_hash bytea NOT NULL UNIQUE, -- of what the program proves itself with
	user_code text NOT NULL UNIQUE,
	host text NOT NULL, -- as the program calls its machine
	program text NOT NULL,
	address text NOT NULL,
	network text NOT NULL, -- of the address, whose open requests are bounded
	created_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz NOT NULL,
	polled_at timestamptz,
	key_id text NOT NULL DEFAULT '', -- the session of the user who answered, '' before
	approved boolean NOT NULL DEFAULT false
);
CREATE INDEX login_requests_expiry ON login_requests (expires_at);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
