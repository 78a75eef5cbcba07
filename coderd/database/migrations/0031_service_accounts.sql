-- +goose Up

-- Accounts of programs: they act with tokens, and have neither a password nor mail. Their address is a placeholder that nothing delivers to.
ALTER TABLE users ADD COLUMN is_service_account boolean NOT NULL DEFAULT false;
ALTER TABLE users ADD CONSTRAINT users_service_accounts CHECK (NOT is_service_account OR (login_type = 'none' AND password_hash = ''));

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
