package notifications_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/mail"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mailbox keeps what was mailed.
type mailbox struct {
	mu   sync.Mutex
	all  []mail.Message
	fail func(attempt int) error // nil: every mail is taken

	attempts int
	entered  chan struct{} // if not nil, receives when a mail arrives, which then waits for leave
	leave    chan struct{}
}

func (b *mailbox) Send(ctx context.Context, m mail.Message) error {
	if b.entered != nil {
		b.entered <- struct{}{}
		select {
		case <-b.leave:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempts++
	if b.fail != nil {
		if err := b.fail(b.attempts); err != nil {
			return err
		}
	}
	b.all = append(b.all, m)
	return nil
}

// subjects returns the subjects of the mails to an address.
func (b *mailbox) subjects(address string) (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.all {
		if m.To.Address == address {
			all = append(all, m.Subject)
		}
	}
	return all
}

var errAway = errors.New("the mail server is away")

// world is a server whose notifications a test delivers itself.
type world struct {
	*coderdtest.Server
	mail *mailbox
}

func newWorld(t *testing.T, edit ...func(*notifications.Config)) *world {
	t.Helper()
	w := &world{mail: &mailbox{}}
	w.Server = coderdtest.New(t, func(o *coderd.Options) {
		o.Notifications.Mail = w.mail
		for _, f := range edit {
			f(&o.Notifications)
		}
	})
	return w
}

// deliver delivers what is due.
func (w *world) deliver() {
	w.T.Helper()
	if err := w.Notifications.Deliver(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// titles delivers what is due and returns the titles in a user's inbox, oldest first, and marks them as read.
func (w *world) titles(user string) []string {
	w.T.Helper()
	w.deliver()
	got, err := w.As(user).Inbox(w.T.Context(), "read_status=unread")
	if err != nil {
		w.T.Fatal(err)
	}
	titles := []string{}
	for _, n := range got.Notifications {
		titles = append([]string{n.Title}, titles...)
	}
	if err := w.As(user).MarkInboxRead(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	return titles
}

// send sends custom notifications to a user.
func (w *world) send(user string, titles ...string) {
	w.T.Helper()
	for _, title := range titles {
		if err := w.As(user).CustomNotification(w.T.Context(), sdk.CustomNotificationContent{Title: title, Message: "Hello"}); err != nil {
			w.T.Fatal(err)
		}
	}
}

// inbox returns a page of a user's inbox.
func (w *world) inbox(user, query string) sdk.ListInboxNotificationsResponse {
	w.T.Helper()
	got, err := w.As(user).Inbox(w.T.Context(), query)
	if err != nil {
		w.T.Fatal(err)
	}
	return got
}

// count returns a number from the database.
func (w *world) count(sql string, args ...any) (n int) {
	w.T.Helper()
	if err := w.DB.Pool.QueryRow(w.T.Context(), sql, args...).Scan(&n); err != nil {
		w.T.Fatal(err)
	}
	return n
}

// second returns a second server's notifications on the same database.
func (w *world) second(box *mailbox) *notifications.Service {
	s := notifications.New(notifications.Options{
		DB: w.DB, PubSub: w.PubSub, Logger: w.Log, AccessURL: w.URL, Accounts: w.Users, Recorder: (notifications.Config{Mail: box}).Recorder(), Config: notifications.Config{Mail: box},
	})
	w.T.Cleanup(s.Stop)
	return s
}
