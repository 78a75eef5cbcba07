-- +goose Up

-- The look of the dashboard on every computer. Empty: the user has not chosen any.
ALTER TABLE user_preferences ADD COLUMN theme text NOT NULL DEFAULT '', ADD COLUMN terminal_font text NOT NULL DEFAULT '';

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
