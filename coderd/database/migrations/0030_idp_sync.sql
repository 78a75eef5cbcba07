-- +goose Up

-- How memberships follow from the claims of the identity provider: the organizations of all users, and the groups and roles in one
-- organization. Missing rows mean the options of the server.
CREATE TABLE idp_sync (
	kind text NOT NULL CHECK (kind IN ('organization', 'group', 'role')),
	organization_id uuid REFERENCES organizations ON DELETE CASCADE,
	settings jsonb NOT NULL,
	created_at timestamptz NOT NULL DEFAULT now(),
	updated_at timestamptz NOT NULL DEFAULT now(),
	CHECK ((organization_id IS NULL) = (kind = 'organization'))
);
CREATE UNIQUE INDEX idp_sync_key ON idp_sync (kind, coalesce(organization_id, '00000000-0000-0000-0000-000000000000'));

-- The memberships that the claims gave the user: {"organizations": [ids], "groups": [ids], "roles": {"<organization>": [names]}}. Sync takes
-- them away when the claims no longer give them.
ALTER TABLE user_links ADD COLUMN synced jsonb NOT NULL DEFAULT '{}';

-- +goose Down
-- Nothing: a newer server's data is not thrown away by an older one.
SELECT 1;
