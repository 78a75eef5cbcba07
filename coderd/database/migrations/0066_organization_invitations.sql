-- +goose Up

-- Users whom an administrator of an organization wants as members. They become members when they accept.
CREATE TABLE organization_invitations (
	organization_id uuid NOT NULL REFERENCES organizations ON DELETE CASCADE,
	user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	invited_by uuid NOT NULL REFERENCES users ON DELETE CASCADE,
	created_at timestamptz NOT NULL DEFAULT now(),
	expires_at timestamptz NOT NULL,
	PRIMARY KEY (organization_id, user_id)
);
CREATE INDEX organization_invitations_user ON organization_invitations (user_id);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
