package notifications_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/mail"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// due makes every pending message due now.
func (w *world) due() {
	w.T.Helper()
	w.Exec(`UPDATE notification_messages SET next_at = now() WHERE status = 'pending'`)
}

// TestMail checks the mails of an event: their texts, and that the receiver can recognize a repetition.
func TestMail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`UPDATE users SET name = E'Ann\r\nBcc: eve@example.com' WHERE id = $1`, w.User("ann"))
	w.send("ann", "A <b>title</b>")
	w.deliver()
	if len(w.mail.all) != 1 {
		t.Fatalf("%d mails", len(w.mail.all))
	}
	m := w.mail.all[0]
	if m.To.Address != "ann@example.com" || m.Subject != "A <b>title</b>" || !strings.HasPrefix(m.Text, "Hello\n") || strings.Contains(m.HTML, "<b>") || m.ID == "" {
		t.Errorf("mail: %+v", m)
	}
	if !strings.Contains(m.Text, w.URL.String()+"/account") {
		t.Errorf("the mail does not lead to the preferences:\n%s", m.Text)
	}
}

// TestRetry checks that a failed delivery is repeated later, with the same id and not to the inbox, until it succeeds or is given up.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *notifications.Config) { c.MaxAttempts = 3 })
	w.mail.fail = func(attempt int) error {
		if attempt < 3 {
			return errAway
		}
		return nil
	}
	w.send("ann", "one")
	for range 3 {
		w.deliver()
		w.deliver() // not due yet
		w.due()
	}
	w.deliver()
	if w.mail.attempts != 3 || len(w.mail.all) != 1 || len(w.inbox("ann", "").Notifications) != 1 {
		t.Errorf("%d attempts, %d mails, inbox %+v", w.mail.attempts, len(w.mail.all), w.inbox("ann", ""))
	}

	w.mail.fail = func(int) error { return errAway }
	w.send("ann", "two")
	for range 5 {
		w.deliver()
		w.due()
	}
	if w.mail.attempts != 6 {
		t.Errorf("%d attempts of a message that is given up after 3", w.mail.attempts-3)
	}
	if n := w.count(`SELECT count(*) FROM notification_messages WHERE status = 'failed' AND error LIKE '%away%'`); n != 1 {
		t.Errorf("%d messages were given up", n)
	}
}

// TestRefused checks that a message that the server will never accept is not sent again.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mail.fail = func(int) error { return mail.Refuse(errAway) }
	w.send("ann", "one")
	for range 3 {
		w.deliver()
		w.due()
	}
	if w.mail.attempts != 1 {
		t.Errorf("%d attempts", w.mail.attempts)
	}
	deleted := w.User("bob")
	w.send("bob", "late")
	w.Exec(`UPDATE users SET deleted_at = now() WHERE id = $1`, deleted)
	w.mail.fail = nil
	w.deliver()
	if len(w.mail.all) != 0 {
		t.Errorf("a deleted user got %+v", w.mail.all)
	}
}

// TestTwoServers checks that two servers deliver each message once.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	box := &mailbox{}
	other := w.second(box)
	const messages = 40
	for range messages {
		w.send("ann", "one")
	}
	var both sync.WaitGroup
	errs := make(chan error, 2)
	both.Go(func() { errs <- w.Notifications.Deliver(t.Context()) })
	both.Go(func() { errs <- other.Deliver(t.Context()) })
	both.Wait()
	for range 2 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]int{}
	for _, m := range append(w.mail.all, box.all...) {
		ids[m.ID]++
	}
	if len(ids) != messages || len(w.mail.all)+len(box.all) != messages {
		t.Errorf("%d and %d mails of %d messages", len(w.mail.all), len(box.all), len(ids))
	}
	if got := w.inbox("ann", ""); got.UnreadCount != messages {
		t.Errorf("%d in the inbox", got.UnreadCount)
	}
}

// TestDeadServer checks that a message whose server died is taken over when the lease ends and not before, and that the result of the
// late server is ignored.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *notifications.Config) { c.MaxAttempts = 2 })
	w.send("ann", "one")
	take := func() (dbsqlc.LeaseNotificationsRow, uuid.UUID) {
		t.Helper()
		lease := uuid.New()
		rows, err := w.DB.LeaseNotifications(t.Context(), dbsqlc.LeaseNotificationsParams{
			Lease: lease, Seconds: 3600, Method: "smtp", MaxRows: 10,
		})
		if err != nil || len(rows) != 1 {
			t.Fatalf("leased %d: %v", len(rows), err)
		}
		return rows[0], lease
	}
	row, lease := take()
	w.deliver()
	if w.mail.attempts != 0 {
		t.Error("a message was sent while another server had its lease")
	}
	w.due() // the lease ends
	w.deliver()
	if len(w.mail.all) != 1 || w.mail.all[0].ID != row.ID.String() {
		t.Errorf("mails after the lease: %+v", w.mail.all)
	}
	if n, err := w.DB.RetryNotification(t.Context(), dbsqlc.RetryNotificationParams{ID: row.ID, Lease: lease, Error: "late"}); err != nil || n != 0 {
		t.Errorf("the late server changed %d messages: %v", n, err)
	}

	w.send("ann", "two") // servers die in each attempt
	for range 2 {
		take()
		w.due()
	}
	w.deliver()
	if len(w.mail.all) != 1 || w.count(`SELECT count(*) FROM notification_messages WHERE status = 'failed'`) != 1 {
		t.Errorf("a message that stops servers is sent again: %d mails", len(w.mail.all))
	}
}

// TestStop checks that a server that stops gives back the messages that it could not send, without counting the attempt.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mail.entered, w.mail.leave = make(chan struct{}, 1), make(chan struct{})
	w.send("ann", "one")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Notifications.Deliver(ctx) }()
	<-w.mail.entered
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := w.count(`SELECT attempts FROM notification_messages WHERE method = 'smtp' AND status = 'pending' AND next_at <= now()`); n != 0 {
		t.Errorf("%d attempts are counted", n)
	}
	close(w.mail.leave)
	go func() { <-w.mail.entered }()
	w.deliver()
	if len(w.mail.all) != 1 {
		t.Errorf("%d mails", len(w.mail.all))
	}
}

// TestRun checks that a running server delivers on its own, soon, and that a mail server that hangs delays only mail.
func TestRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.mail.entered, w.mail.leave = make(chan struct{}, 100), make(chan struct{})
	w.Notifications.Start()
	w.send("ann", "one")
	<-w.mail.entered
	w.send("ann", "two")
	testwait.Until(t, "two notifications in the inbox", func() error { return testwait.Len(w.inbox("ann", "").Notifications, 2) })
	close(w.mail.leave)
	testwait.Until(t, "both mails", func() error { return testwait.Len(w.mail.subjects("ann@example.com"), 2) })
}

// hook is a webhook of a test.
type hook struct {
	mu     sync.Mutex
	status int
	bodies []string
	header http.Header
	url    *url.URL
}

func newHook(t *testing.T) *hook {
	h := &hook{status: http.StatusOK}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	var err error
	if h.url, err = url.Parse(s.URL + "/hook?key=a-secret-key"); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var body json.RawMessage
	_ = json.NewDecoder(r.Body).Decode(&body)
	h.bodies, h.header = append(h.bodies, string(body)), r.Header
	if h.status == http.StatusTemporaryRedirect {
		w.Header().Set("Location", r.URL.Query().Get("to"))
	}
	w.WriteHeader(h.status)
}

// TestWebhook checks what a webhook gets.
func TestWebhook(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	w := newWorld(t, func(c *notifications.Config) { c.Method, c.Webhook = "webhook", h.url })
	w.send("ann", "A *title*")
	w.deliver()
	if len(h.bodies) != 1 || len(w.mail.all) != 0 || h.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%d requests, %d mails, %v", len(h.bodies), len(w.mail.all), h.header)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(h.bodies[0]), &got); err != nil {
		t.Fatal(err)
	}
	id, _ := got["msg_id"].(string)
	if id == "" || h.header.Get("X-Message-Id") != id {
		t.Errorf("id %q, header %v", id, h.header)
	}
	delete(got, "msg_id")
	want := map[string]any{
		"_version": "1.1", "title": "A *title*", "title_markdown": `A \*title\*`, "body": "Hello", "body_markdown": "Hello",
		"payload": map[string]any{
			"_version": "1.1", "notification_name": "Custom Notification", "notification_template_id": notifications.Custom.ID.String(),
			"user_id": w.User("ann").String(), "user_email": "ann@example.com", "user_name": "", "user_username": "ann",
			"actions": []any{}, "labels": map[string]any{"title": "A *title*", "message": "Hello"}, "data": nil, "targets": []any{},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// TestHostileWebhook checks that redirects, refusals and silence are failed attempts that reveal neither the message nor the URL.
func TestHostileWebhook(t *testing.T) {
	t.Parallel()
	h, elsewhere := newHook(t), newHook(t)
	h.url.RawQuery += "&to=" + url.QueryEscape(elsewhere.url.String())
	w := newWorld(t, func(c *notifications.Config) { c.Method, c.Webhook, c.MaxAttempts = "webhook", h.url, 2 })
	h.status = http.StatusTemporaryRedirect
	w.send("ann", "one")
	w.deliver()
	if len(h.bodies) != 1 || len(elsewhere.bodies) != 0 {
		t.Errorf("%d requests, %d to another host", len(h.bodies), len(elsewhere.bodies))
	}
	h.status = http.StatusInternalServerError
	w.due()
	w.deliver()
	if n := w.count(`SELECT count(*) FROM notification_messages WHERE status = 'failed' AND error LIKE '%500%'`); n != 1 {
		t.Errorf("%d messages were given up", n)
	}

	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices only then that the client left
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	u, err := url.Parse(silent.URL + "/?key=a-secret-key")
	if err != nil {
		t.Fatal(err)
	}
	quiet := newWorld(t, func(c *notifications.Config) { c.Method, c.Webhook, c.Timeout = "webhook", u, 50*time.Millisecond })
	quiet.send("ann", "one")
	quiet.deliver()
	if n := quiet.count(`SELECT count(*) FROM notification_messages WHERE status = 'pending' AND method = 'webhook' AND attempts = 1 AND next_at > now()`); n != 1 {
		t.Errorf("%d messages wait for the webhook", n)
	}
	for _, x := range []*world{w, quiet} {
		if logged := x.Logged(); strings.Contains(logged, "a-secret-key") || !strings.Contains(logged, "cannot deliver notification") {
			t.Errorf("log:\n%s", logged)
		}
		if n := x.count(`SELECT count(*) FROM notification_messages WHERE error LIKE '%secret-key%'`); n != 0 {
			t.Error("the URL is stored")
		}
	}
}
