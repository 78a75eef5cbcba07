-- +goose Up

-- Since when the provisioner of a running job has been offline; NULL while it is not. Servers set it a few seconds after they notice, and the
-- job's log says so then.
ALTER TABLE provisioner_jobs ADD COLUMN absent_since timestamptz;

DROP TRIGGER provisioner_jobs_changed ON provisioner_jobs;
CREATE TRIGGER provisioner_jobs_changed AFTER UPDATE ON provisioner_jobs FOR EACH ROW
	WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.worker_id IS DISTINCT FROM NEW.worker_id OR OLD.error IS DISTINCT FROM NEW.error
		OR OLD.completed_at IS DISTINCT FROM NEW.completed_at OR OLD.absent_since IS DISTINCT FROM NEW.absent_since)
	EXECUTE FUNCTION provisioner_jobs_event();

-- +goose Down
-- Nothing: an older server must not discard a newer one's data.
SELECT 1;
