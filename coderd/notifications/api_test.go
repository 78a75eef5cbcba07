package notifications_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// TestInbox checks the inbox of a user, and that another user reaches nothing in it.
func TestInbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var titles []string
	for i := range 30 {
		titles = append(titles, fmt.Sprintf("Message %02d", i))
	}
	w.send("ann", titles...)
	w.deliver()
	first := w.inbox("ann", "")
	if len(first.Notifications) != 25 || first.UnreadCount != 30 || first.Notifications[0].ReadAt != nil {
		t.Fatalf("first page: %d of %d", len(first.Notifications), first.UnreadCount)
	}
	last := first.Notifications[24]
	rest := w.inbox("ann", "starting_before="+last.ID.String())
	if len(rest.Notifications) != 5 {
		t.Errorf("second page: %d", len(rest.Notifications))
	}
	read, err := w.As("ann").SetInboxRead(t.Context(), last.ID, true)
	if err != nil || read.UnreadCount != 29 || read.Notification.ReadAt == nil {
		t.Errorf("marked: %+v, %v", read, err)
	}
	if got := w.inbox("ann", "read_status=read"); len(got.Notifications) != 1 || got.Notifications[0].ID != last.ID {
		t.Errorf("read: %+v", got)
	}
	if read, err = w.As("ann").SetInboxRead(t.Context(), last.ID, false); err != nil || read.UnreadCount != 30 {
		t.Errorf("marked as unread: %+v, %v", read, err)
	}

	for _, eve := range []string{"bob", "olga"} { // a member and an owner
		if got := w.inbox(eve, ""); len(got.Notifications) != 0 || got.UnreadCount != 0 {
			t.Errorf("%s sees %+v", eve, got)
		}
		if _, err := w.As(eve).SetInboxRead(t.Context(), last.ID, true); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s marks another user's notification: %v", eve, err)
		}
		if _, err := w.As(eve).Inbox(t.Context(), "starting_before="+last.ID.String()); fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s asks for what came before another user's notification: %v", eve, err)
		}
		if err := w.As(eve).MarkInboxRead(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.inbox("ann", "read_status=unread"); got.UnreadCount != 30 {
		t.Errorf("%d unread after others marked theirs", got.UnreadCount)
	}
	if err := w.As("ann").MarkInboxRead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.inbox("ann", "read_status=unread"); got.UnreadCount != 0 || len(got.Notifications) != 0 {
		t.Errorf("after all were marked: %+v", got)
	}
	for _, query := range []string{"read_status=maybe", "format=html", "targets=x", "templates=x", "starting_before=x"} {
		if _, err := w.As("ann").Inbox(t.Context(), query); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", query, err)
		}
	}
	if _, err := w.With("").Inbox(t.Context(), ""); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("without a session: %v", err)
	}
}

// watch opens a user's stream.
func (w *world) watch(user, query string) *websock.Conn {
	w.T.Helper()
	u := w.URL.JoinPath("/api/v2/notifications/inbox/watch")
	u.RawQuery = query
	conn, err := websock.Dial(w.T.Context(), u, websock.DialOptions{Header: http.Header{sdk.SessionHeader: {w.Token(user)}}})
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { _ = conn.Close(websock.StatusNormal, "") })
	return conn
}

// TestWatch checks that a stream tells of what comes in, to its user only, in order and filtered.
func TestWatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.send("ann", "before")
	w.deliver()
	ann, bob := w.watch("ann", "format=plaintext"), w.watch("bob", "")
	filtered := w.watch("ann", "templates="+notifications.Test.ID.String())
	next := func(conn *websock.Conn) sdk.InboxNotificationResponse {
		t.Helper()
		var got sdk.InboxNotificationResponse
		if err := conn.ReadJSON(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	w.send("bob", "for bob")
	w.deliver()
	if got := next(bob); got.Notification.Title != "for bob" || got.UnreadCount != 1 {
		t.Errorf("bob: %+v", got)
	}
	w.send("ann", "one", "two")
	w.deliver()
	for i, want := range []string{"one", "two"} {
		if got := next(ann); got.Notification.Title != want || got.Notification.Content != "Hello" || got.Notification.UserID != w.User("ann") {
			t.Errorf("message %d: %+v", i, got)
		}
	}
	w.Exec(`UPDATE users SET roles = '{owner}' WHERE id = $1`, w.User("ann"))
	if err := w.As("ann").TestNotification(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	if got := next(filtered); got.Notification.TemplateID != notifications.Test.ID || got.UnreadCount != w.inbox("ann", "").UnreadCount {
		t.Errorf("filtered: %+v", got)
	}
}

// TestSettings checks that administrators alone pause notifications and choose methods, that both are obeyed and recorded.
func TestSettings(t *testing.T) {
	t.Parallel()
	hook := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	w := newWorld(t, func(c *notifications.Config) { c.Webhook = hook })
	ctx, olga := t.Context(), w.As("olga")
	pause := sdk.NotificationsSettings{NotifierPaused: true}
	id := notifications.Custom.ID
	for _, user := range []string{"ann", "tom"} {
		if _, err := w.As(user).UpdateNotificationsSettings(ctx, pause); fault.CodeOf(err) != fault.Forbidden && fault.CodeOf(err) != fault.NotFound {
			t.Errorf("%s pauses: %v", user, err)
		}
		if err := w.As(user).UpdateNotificationTemplateMethod(ctx, id, "webhook"); err == nil {
			t.Errorf("%s chooses a method", user)
		}
		if err := w.As(user).TestNotification(ctx); err == nil {
			t.Errorf("%s tests", user)
		}
	}
	methods, err := w.As("ann").NotificationMethods(ctx)
	if err != nil || methods.Default != "smtp" || !slices.Equal(methods.Available, []string{"smtp", "webhook"}) {
		t.Errorf("methods: %+v, %v", methods, err)
	}

	w.send("ann", "before the pause")
	for range 2 {
		if got, err := olga.UpdateNotificationsSettings(ctx, pause); err != nil || !got.NotifierPaused {
			t.Fatalf("pause: %+v, %v", got, err)
		}
	}
	if got, err := w.As("ann").NotificationsSettings(ctx); err != nil || !got.NotifierPaused {
		t.Errorf("settings: %+v, %v", got, err)
	}
	w.deliver()
	if got := w.inbox("ann", ""); len(got.Notifications) != 0 || len(w.mail.all) != 0 {
		t.Errorf("delivered during the pause: %+v, %d mails", got, len(w.mail.all))
	}
	if err := olga.TestNotification(ctx); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a test during the pause: %v", err)
	}
	if _, err := olga.UpdateNotificationsSettings(ctx, sdk.NotificationsSettings{}); err != nil {
		t.Fatal(err)
	}
	w.deliver()
	if got := w.inbox("ann", ""); len(got.Notifications) != 1 || len(w.mail.all) != 1 {
		t.Errorf("after the pause: %+v, %d mails", got, len(w.mail.all))
	}

	if err := olga.UpdateNotificationTemplateMethod(ctx, id, "webhook"); err != nil {
		t.Fatal(err)
	}
	w.send("ann", "by webhook")
	if n := w.count(`SELECT count(*) FROM notification_messages WHERE status = 'pending' AND method = 'webhook'`); n != 1 {
		t.Errorf("%d messages for the webhook", n)
	}
	if err := olga.UpdateNotificationTemplateMethod(ctx, id, ""); err != nil {
		t.Fatal(err)
	}
	w.send("ann", "by mail again")
	if n := w.count(`SELECT count(*) FROM notification_messages WHERE status = 'pending' AND method = 'smtp'`); n != 1 {
		t.Errorf("%d messages for the mail server", n)
	}
	for _, method := range []string{"inbox", "pigeon"} {
		if err := olga.UpdateNotificationTemplateMethod(ctx, id, method); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("method %q: %v", method, err)
		}
	}
	if err := olga.UpdateNotificationTemplateMethod(ctx, uuid.New(), "smtp"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a template that does not exist: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM audit_logs WHERE resource_type IN ('notifications_settings', 'notification_template') AND status_code = 200`); n != 5 {
		t.Errorf("%d rows in the audit log", n)
	}
	if n := w.count(`SELECT count(*) FROM audit_logs WHERE resource_type = 'notifications_settings' AND diff <> '{}'`); n != 2 {
		t.Errorf("%d changes in the audit log", n)
	}
}

// TestPreferences checks that users turn events off for themselves, and what cannot be turned off.
func TestPreferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, ann := t.Context(), w.As("ann")
	set := func(user, of string, disabled bool, ids ...string) error {
		req := sdk.UpdateUserNotificationPreferences{TemplateDisabledMap: map[string]bool{}}
		for _, id := range ids {
			req.TemplateDisabledMap[id] = disabled
		}
		_, err := w.As(user).UpdateNotificationPreferences(ctx, of, req)
		return err
	}
	custom := notifications.Custom.ID.String()
	const former = "5b7aa9b4-7b0e-4d7e-9d3c-3c0d8f6b1a20" // of the custom notification, before it had Coder's id
	if err := set("ann", "me", true, former); err != nil {
		t.Fatal(err)
	}
	got, err := ann.NotificationPreferences(ctx, "me")
	if err != nil || len(got) != 1 || got[0].ID != notifications.Custom.ID || !got[0].Disabled {
		t.Errorf("preferences: %+v, %v", got, err)
	}
	if err := ann.CustomNotification(ctx, sdk.CustomNotificationContent{Title: "x", Message: "y"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("an event that is turned off: %v", err)
	}
	w.send("bob", "his own")
	if titles := w.titles("bob"); len(titles) != 1 {
		t.Errorf("bob got %q", titles)
	}
	if err := set("ann", "me", false, custom); err != nil {
		t.Fatal(err)
	}
	w.send("ann", "on again")
	if titles := w.titles("ann"); !slices.Equal(titles, []string{"on again"}) {
		t.Errorf("ann got %q", titles)
	}

	for what, ids := range map[string][]string{
		"no template": {uuid.NewString()}, "no id": {"x"}, "nothing": {}, "half": {custom, uuid.NewString()}, "required": {notifications.YourAccountSuspended.ID.String()},
	} {
		if err := set("ann", "me", true, ids...); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, err := ann.NotificationPreferences(ctx, "me"); err != nil || len(got) != 1 || got[0].Disabled {
		t.Errorf("refused requests changed the preferences: %+v, %v", got, err)
	}
	if err := set("bob", "ann", true, custom); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another member: %v", err)
	}
	if _, err := w.As("bob").NotificationPreferences(ctx, "ann"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another member reads: %v", err)
	}
	if err := set("olga", "ann", true, custom); err != nil { // as other settings of accounts
		t.Errorf("an owner: %v", err)
	}
	if n := w.count(`SELECT count(*) FROM audit_logs WHERE resource_type = 'user' AND diff ? 'disabled notification: Custom Notification'`); n != 3 {
		t.Errorf("%d rows in the audit log", n)
	}
}

// TestTemplatesAPI checks the lists of templates, and the limits of custom notifications.
func TestTemplatesAPI(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all, err := w.As("ann").NotificationTemplates(t.Context())
	if err != nil || len(all) != len(notifications.All())-1 {
		t.Fatalf("%d templates: %v", len(all), err)
	}
	for _, of := range all {
		if of.Kind != "system" || of.Group == "" || of.TitleTemplate == "" || !strings.HasPrefix(of.Actions, "[") {
			t.Errorf("%+v", of)
		}
	}
	for what, content := range map[string]sdk.CustomNotificationContent{
		"no title": {Message: "x"}, "no message": {Title: "x"}, "blank": {Title: "\n", Message: " "},
		"long title": {Title: strings.Repeat("ä", 121), Message: "x"}, "long message": {Title: "x", Message: strings.Repeat("ä", 2001)},
	} {
		if err := w.As("ann").CustomNotification(t.Context(), content); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.send("ann", strings.Repeat("ä", 120))
	if titles := w.titles("ann"); len(titles) != 1 || titles[0] != strings.Repeat("ä", 120) {
		t.Errorf("the longest title: %q", titles)
	}
}

// TestInboxOff checks that nothing comes into inboxes that are turned off, and that a server without any method says so.
func TestInboxOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *notifications.Config) { c.NoInbox = true })
	w.send("ann", "by mail")
	w.deliver()
	if got := w.inbox("ann", ""); len(got.Notifications) != 0 || len(w.mail.all) != 1 {
		t.Errorf("%+v, %d mails", got, len(w.mail.all))
	}
	mute := newWorld(t, func(c *notifications.Config) { c.NoInbox, c.Mail = true, nil })
	if err := mute.As("ann").CustomNotification(t.Context(), sdk.CustomNotificationContent{Title: "x", Message: "y"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("without a method: %v", err)
	}
}
