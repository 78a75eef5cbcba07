-- +goose Up

-- What requests with an Idempotency-Key have created, so that a request that is repeated with its key creates nothing again. A row is written
-- in the transaction of the creation. It holds no answer: what was created is read again. Rows are removed after a day.
CREATE TABLE creation_keys (
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	key_hash bytea NOT NULL CHECK (octet_length(key_hash) = 32), -- SHA-256 of the key
	request_id uuid NOT NULL, -- the request that used it first
	request_hash bytea NOT NULL CHECK (octet_length(request_hash) = 32), -- HMAC-SHA-256 of its method, path and body, with the key
	object_id uuid NOT NULL, -- what it created
	created_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (user_id, key_hash)
);
CREATE INDEX creation_keys_age ON creation_keys (created_at);
CREATE INDEX creation_keys_user_age ON creation_keys (user_id, created_at);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
