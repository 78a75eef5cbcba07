package webhooks_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

// TestAttackers checks that only owners reach webhooks, that no webhook reaches the server's own host or network, and that redirects are not followed.
func TestAttackers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := w.add("ci", "user.*")
	id := hook.Webhook.ID
	now := time.Now()
	for _, user := range []string{"ann", "tom", "eve"} {
		c := w.As(user)
		_, list := c.Webhooks(t.Context())
		_, create := c.CreateWebhook(t.Context(), sdk.CreateWebhookRequest{Name: "mine", URL: w.receiver.URL})
		_, update := c.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{URL: new(w.receiver.URL)})
		_, log := c.WebhookDeliveries(t.Context(), id, 1, 0)
		_, replay := c.ReplayWebhook(t.Context(), id, sdk.ReplayWebhookRequest{Since: &now})
		_, secret := c.ReplaceWebhookSecret(t.Context(), id, sdk.ReplaceWebhookSecretRequest{})
		for what, err := range map[string]error{"secret": secret, "list": list, "create": create, "update": update, "deliveries": log, "replay": replay,
			"test": c.TestWebhook(t.Context(), id), "delete": c.DeleteWebhook(t.Context(), id)} {
			if code := fault.CodeOf(err); code != fault.Forbidden && code != fault.NotFound {
				t.Errorf("%s by %s: %v", what, user, err)
			}
		}
	}
	for _, status := range []int{301, 302, 307, 308} {
		w.answers(status)
		w.event("user.updated", uuid.New(), `{}`)
		if got := w.deliver(); len(got) != 0 {
			t.Errorf("status %d: got %v", status, got)
		}
		if d := w.deliveries(id)[0]; !strings.Contains(d.Error, "redirects are not followed") {
			t.Errorf("status %d: %+v", status, d)
		}
	}

	closed := coderdtest.New(t) // without allowed networks
	olga := closed.As("olga")
	for _, address := range []string{
		"http://localhost/", "https://127.0.0.1:8080/x", "http://[::1]/", "http://169.254.169.254/latest/meta-data", "http://[fd00:ec2::254]/",
		"http://[::ffff:169.254.169.254]/", "http://metadata.localhost/", "http://[fe80::1%25eth0]/", "ftp://example.com/", "file:///etc/passwd", "//example.com", "", "http://",
		"https://user:pass@example.com/", "https://example.com/#x", "javascript:alert(1)", "https://example.com/" + strings.Repeat("x", 3000), "http://exa\x00mple.com",
	} {
		if _, err := olga.CreateWebhook(t.Context(), sdk.CreateWebhookRequest{Name: "x", URL: address}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want invalid", address, err)
		}
	}
	for _, req := range []sdk.CreateWebhookRequest{
		{Name: ""}, {Name: "a b"}, {Name: "<b>"}, {Name: strings.Repeat("x", 65)}, {Name: "x", Format: "xml"}, {Name: "x", Events: []string{"webhook.test"}},
		{Name: "x", Events: []string{"user."}}, {Name: "x", Events: []string{".*"}}, {Name: "x", Events: []string{"user.created.*"}}, {Name: "x", Events: []string{""}},
		{Name: "x", Events: slices.Repeat([]string{"*"}, 65)},
	} {
		req.URL = "https://example.com/"
		if _, err := olga.CreateWebhook(t.Context(), req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%+v: %v, want invalid", req, err)
		}
	}
	// What was allowed once, or has moved, is refused when it is reached.
	w.answers(http.StatusOK)
	w.due()
	if err := w.another(nil).Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, d := range w.deliveries(id) {
		if d.Status != "pending" || d.ResponseStatus != 0 || !strings.Contains(d.Error, "--webhook-allowed-networks") {
			t.Errorf("got %+v", d)
		}
	}
	if got := w.taken(); len(got) != 0 {
		t.Errorf("reached: %v", got)
	}
}

// TestChange checks changes of a webhook: of its name, its URL and what it gets.
func TestChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := w.add("ci", "user.*")
	w.add("other", "build.*")
	id, olga := hook.Webhook.ID, w.As("olga")
	if _, err := olga.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{Name: new("OTHER")}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("the name of another: %v", err)
	}
	if _, err := olga.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{URL: new("http://169.254.169.254/")}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("the URL of a host's metadata: %v", err)
	}
	got, err := olga.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{Name: new("chat"), Events: &sdk.List[string]{"template.*"}, Format: new("slack"), URL: new(w.receiver.URL + "/new")})
	if err != nil || got.Name != "chat" || got.Format != "slack" {
		t.Fatalf("got %+v, %v", got, err)
	}
	w.event("user.updated", uuid.New(), `{}`)
	w.event("template.updated", uuid.New(), `{"template_name": "a<b>", "actor": "ann"}`)
	if all := w.deliver(); len(all) != 1 || string(all[0].body) != `{"text":"Template a\u0026lt;b\u0026gt;: updated by ann"}` {
		t.Errorf("got %+v", all)
	}
	if _, err := olga.UpdateWebhook(t.Context(), uuid.New(), sdk.UpdateWebhookRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown webhook: %v", err)
	}
	w.event("template.updated", uuid.New(), `{}`)
	if err := olga.DeleteWebhook(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if all := w.deliver(); len(all) != 0 {
		t.Errorf("a removed webhook got %v", all)
	}
}

// TestReplaceSecret: a receiver has time to learn a new secret, unless its owner says that the old one has leaked.
func TestReplaceSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.add("ci", "user.*")
	id, olga := first.Webhook.ID, w.As("olga")
	signed := func(want ...string) {
		t.Helper()
		w.event("user.updated", uuid.New(), `{}`)
		got := w.deliver()
		if len(got) != 1 {
			t.Fatalf("got %v", got)
		}
		header := got[0].header
		at, err := strconv.ParseInt(header.Get(webhook.HeaderTimestamp), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		var signatures []string
		for _, secret := range want {
			one, err := webhook.Signature(secret, header.Get(webhook.HeaderID), time.Unix(at, 0), got[0].body)
			if err != nil {
				t.Fatal(err)
			}
			signatures = append(signatures, one)
		}
		if diff := cmp.Diff(signatures, strings.Fields(header.Get(webhook.HeaderSignature))); diff != "" {
			t.Errorf("signatures (-want +got):\n%s", diff)
		}
	}
	replace := func(overlap *int64) string {
		t.Helper()
		got, err := olga.ReplaceWebhookSecret(t.Context(), id, sdk.ReplaceWebhookSecretRequest{OverlapSeconds: overlap})
		if err != nil || got.Webhook.ID != id {
			t.Fatalf("got %+v, %v", got, err)
		}
		return got.Secret
	}
	signed(first.Secret)
	second := replace(nil)
	signed(second, first.Secret)
	third := replace(new(int64(60)))
	signed(third, second)
	// A change of the address keeps both.
	if _, err := olga.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{URL: new(w.receiver.URL + "/other")}); err != nil {
		t.Fatal(err)
	}
	signed(third, second)
	fourth := replace(new(int64(0)))
	signed(fourth)

	for _, overlap := range []int64{-1, 8 * 24 * 60 * 60} {
		if _, err := olga.ReplaceWebhookSecret(t.Context(), id, sdk.ReplaceWebhookSecretRequest{OverlapSeconds: &overlap}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("an overlap of %d s: %v", overlap, err)
		}
	}
	if _, err := olga.ReplaceWebhookSecret(t.Context(), uuid.New(), sdk.ReplaceWebhookSecretRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("an unknown webhook: %v", err)
	}
	var rows string
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT string_agg(l::text, ' ') FROM audit_logs l WHERE action = 'write'`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	if strings.Count(rows, "overlap_seconds") != 3 || strings.Contains(rows, strings.TrimPrefix(second, "whsec_")) {
		t.Errorf("the audit log has %s", rows)
	}
}

// TestManyDeliveries checks that the log of deliveries goes on where an answer ends, for owners only.
func TestManyDeliveries(t *testing.T) {
	t.Parallel()
	const many = 101
	w := newWorld(t)
	id := w.add("ci", "user.created").Webhook.ID
	w.event("user.created", uuid.New(), `{"username": "one"}`)
	if got := w.deliver(); len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	w.Exec(`INSERT INTO webhook_deliveries (webhook_id, event_id, subject, status, finished_at)
		SELECT webhook_id, event_id, subject, status, now() FROM webhook_deliveries, generate_series(2, $1::int)`, many)
	newest := w.deliveries(id)
	if len(newest) != 100 {
		t.Fatalf("the first answer has %d deliveries", len(newest))
	}
	oldest, err := w.As("olga").WebhookDeliveries(t.Context(), id, 100, newest[99].ID)
	if err != nil || len(oldest) != 1 || oldest[0].ID >= newest[99].ID {
		t.Errorf("after it: %+v, %v", oldest, err)
	}
	if _, err := w.As("olga").WebhookDeliveries(t.Context(), id, many, 0); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("an answer of %d: %v", many, err)
	}
	_, err = w.As("ann").WebhookDeliveries(t.Context(), id, 100, newest[99].ID)
	if code := fault.CodeOf(err); code != fault.Forbidden && code != fault.NotFound {
		t.Errorf("a member reads the log: %v", err)
	}
}
