-- +goose Up

-- What a user has chosen for the dashboard, on every computer. Users without a row have the defaults.
CREATE TABLE user_preferences (
	user_id uuid PRIMARY KEY REFERENCES users ON DELETE CASCADE,
	preferences jsonb NOT NULL -- sdk.UserPreferences
);

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
