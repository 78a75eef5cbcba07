-- +goose Up

-- When a running job is interrupted because its server is stopping; NULL while that is not so.
ALTER TABLE provisioner_jobs ADD COLUMN interrupted_at timestamptz;

DROP TRIGGER provisioner_jobs_changed ON provisioner_jobs;
CREATE TRIGGER provisioner_jobs_changed AFTER UPDATE ON provisioner_jobs FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.worker_id IS DISTINCT FROM NEW.worker_id OR OLD.error IS DISTINCT FROM NEW.error
		OR OLD.completed_at IS DISTINCT FROM NEW.completed_at OR OLD.absent_since IS DISTINCT FROM NEW.absent_since
		OR OLD.interrupted_at IS DISTINCT FROM NEW.interrupted_at)
	EXECUTE FUNCTION provisioner_jobs_event();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
