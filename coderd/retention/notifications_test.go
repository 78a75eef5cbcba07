package retention_test

import (
	"testing"

	"github.com/google/uuid"
)

// TestNotifications checks that messages are removed a week after their delivery, and notifications 90 days after they were read; what
// waits or was not read stays.
func TestNotifications(t *testing.T) {
	t.Parallel()
	w, s, _ := newWorld(t)
	w.Exec(`DELETE FROM notification_messages`)
	ann := w.User("ann")
	for _, row := range []struct{ status, finished string }{{"sent", "8 days"}, {"failed", "8 days"}, {"sent", "6 days"}, {"pending", ""}} {
		w.Exec(`INSERT INTO notification_messages (id, template_id, user_id, method, status, created_at, finished_at)
			VALUES ($1, $1, $2, 'smtp', $3, now() - interval '100 days', now() - nullif($4, '')::interval)`, uuid.New(), ann, row.status, row.finished)
	}
	for _, read := range []string{"91 days", "89 days", ""} {
		w.Exec(`INSERT INTO inbox_notifications (id, user_id, template_id, title, content, content_plain, created_at, read_at)
			VALUES ($1, $2, $1, '', '', '', now() - interval '400 days', now() - nullif($3, '')::interval)`, uuid.New(), ann, read)
	}
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := count(t, w, `SELECT count(*) FROM notification_messages`); n != 2 {
		t.Errorf("%d messages are left, want the young and the pending one", n)
	}
	if n := count(t, w, `SELECT count(*) FROM inbox_notifications`); n != 2 {
		t.Errorf("%d notifications are left, want the young and the unread one", n)
	}
}

// TestKeysOfRequests checks that the keys of requests are removed after a day.
func TestKeysOfRequests(t *testing.T) {
	t.Parallel()
	w, s, _ := newWorld(t)
	for _, age := range []string{"25 hours", "23 hours", "0"} {
		w.Exec(`INSERT INTO creation_keys (user_id, key_hash, request_id, request_hash, object_id, created_at)
			VALUES ($1, sha256($2::text::bytea), $1, sha256(''), $1, now() - $2::text::interval)`, w.User("ann"), age)
	}
	run(t, s)
	if n := count(t, w, `SELECT count(*) FROM creation_keys`); n != 2 {
		t.Errorf("%d keys are left, want those of the last day", n)
	}
}
