-- +goose Up

-- Find what retention removes.
CREATE INDEX provisioner_jobs_ended ON provisioner_jobs (kind, completed_at) WHERE completed_at IS NOT NULL;
CREATE INDEX inbox_notifications_forgotten ON inbox_notifications (created_at) WHERE read_at IS NULL;

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
