package webhooks_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/webhooks"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// world is a server whose events a test delivers itself, and a receiver.
type world struct {
	*coderdtest.Server
	receiver *httptest.Server

	mu     sync.Mutex
	got    []message // guarded by mu: what was accepted
	answer func(sdk.LifecycleEvent) int
}

// message is what the receiver accepted.
type message struct {
	header http.Header
	body   []byte
	sdk.LifecycleEvent
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{answer: func(sdk.LifecycleEvent) int { return http.StatusNoContent }}
	w.Server = coderdtest.New(t, func(o *coderd.Options) { o.WebhookNetworks = loopback })
	w.receiver = httptest.NewServer(http.HandlerFunc(w.receive))
	t.Cleanup(w.receiver.Close)
	return w
}

func (w *world) receive(rw http.ResponseWriter, r *http.Request) {
	m := message{header: r.Header}
	m.body, _ = io.ReadAll(r.Body)
	_ = json.Unmarshal(m.body, &m.LifecycleEvent)
	w.mu.Lock()
	defer w.mu.Unlock()
	status := w.answer(m.LifecycleEvent)
	if status < 300 {
		w.got = append(w.got, m)
	}
	rw.Header().Set("Location", "/elsewhere")
	rw.WriteHeader(status)
	if status >= 300 {
		fmt.Fprintf(rw, "answer %d", status)
	}
}

// answers makes the receiver answer with a status.
func (w *world) answers(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(sdk.LifecycleEvent) int { return status }
}

// deliver delivers what is due, and returns what the receiver has accepted since the last call.
func (w *world) deliver() []message {
	w.T.Helper()
	if err := w.Webhooks.Deliver(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
	return w.taken()
}

func (w *world) taken() []message {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.got
	w.got = nil
	return got
}

func types(all []message) []string {
	out := []string{}
	for _, m := range all {
		out = append(out, m.Type)
	}
	return out
}

// add adds a webhook that gets some types of events.
func (w *world) add(name string, events ...string) sdk.CreateWebhookResponse {
	w.T.Helper()
	made, err := w.As("olga").CreateWebhook(w.T.Context(), sdk.CreateWebhookRequest{Name: name, URL: w.receiver.URL + "/hidden?token=s3cr3t", Events: events})
	if err != nil {
		w.T.Fatal(err)
	}
	return made
}

func (w *world) deliveries(id uuid.UUID) []sdk.WebhookDelivery {
	w.T.Helper()
	all, err := w.As("olga").WebhookDeliveries(w.T.Context(), id, 100, 0)
	if err != nil {
		w.T.Fatal(err)
	}
	return all
}

// due makes every delivery due that waits for another attempt.
func (w *world) due() {
	w.Exec(`UPDATE webhook_deliveries SET next_at = now() WHERE status = 'pending'`)
}

// another returns the deliveries of another server on the database.
func (w *world) another(allowed []netip.Prefix) *webhooks.Service {
	w.T.Helper()
	s := webhooks.New(webhooks.Options{
		DB: w.DB, PubSub: w.PubSub, Logger: slog.New(slog.DiscardHandler), Keys: w.States, AccessURL: w.URL, Authenticate: w.Users.Authenticate, Allowed: allowed,
	})
	w.T.Cleanup(s.Stop)
	return s
}

// event writes an event as the triggers do.
func (w *world) event(kind string, subject uuid.UUID, data string) {
	w.Exec(`SELECT lifecycle_event($1, split_part($1, '.', 1), $2, NULL, NULL, $3::jsonb)`, kind, subject, data)
}

// TestWorkspace checks what is sent of the life of a workspace, that it is signed, and that no secret is sent, shown or stored as it is.
func TestWorkspace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	template := w.Template("docker", nil)
	w.deliver()
	hook := w.add("ci", "workspace.*", "build.*")
	ws := w.Workspace("ann", "dev", template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("state"))
	w.Build("ann", ws.ID, sdk.TransitionDelete)
	w.Daemon().Next().Finish(coderdtest.Built(""))
	got := w.deliver()
	want := []string{"workspace.created", "build.created", "build.succeeded", "build.created"}
	if diff := cmp.Diff(want, types(got)[:min(len(got), 4)]); diff != "" {
		t.Fatalf("events (-want +got):\n%s", diff)
	}
	rest := types(got)[4:]
	slices.Sort(rest)
	if diff := cmp.Diff([]string{"build.succeeded", "workspace.deleted"}, rest); diff != "" {
		t.Errorf("the last events (-want +got):\n%s", diff)
	}
	seen := map[string]bool{}
	for i, m := range got {
		at, err := strconv.ParseInt(m.header.Get(webhook.HeaderTimestamp), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		signature, err := webhook.Signature(hook.Secret, m.header.Get(webhook.HeaderID), time.Unix(at, 0), m.body)
		if err != nil || m.header.Get(webhook.HeaderSignature) != signature {
			t.Errorf("%s: signature %q, want %q, %v", m.Type, m.header.Get(webhook.HeaderSignature), signature, err)
		}
		if id := m.header.Get(webhook.HeaderID); id != m.ID.String() || seen[id] {
			t.Errorf("%s: id %s, and the body has %s", m.Type, id, m.ID)
		}
		seen[m.ID.String()] = true
		if d := m.Data; *d.WorkspaceID != ws.ID || d.OwnerName != "ann" || d.WorkspaceName != "dev" || d.TemplateName != "docker" || *d.OrganizationID != w.Org {
			t.Errorf("%s: %+v", m.Type, d)
		}
		if i > 0 && m.Sequence <= got[i-1].Sequence {
			t.Errorf("%s has the number %d after %d", m.Type, m.Sequence, got[i-1].Sequence)
		}
	}
	if d := got[0].Data; d.Actor != "ann" || *d.ActorID != w.User("ann") {
		t.Errorf("created by %+v", d)
	}
	if d := got[1].Data; d.BuildNumber != 1 || d.Transition != sdk.TransitionStart || d.Actor != "ann" || d.BuildID == nil {
		t.Errorf("build %+v", d)
	}
	var stored string
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT (SELECT string_agg(encode(sealed, 'escape') || origin, ' ') FROM webhooks)
		|| (SELECT string_agg(l::text, ' ') FROM audit_logs l) || (SELECT string_agg(d::text, ' ') FROM webhook_deliveries d)`).Scan(&stored); err != nil {
		t.Fatal(err)
	}
	list, err := w.As("olga").Webhooks(t.Context())
	if err != nil || len(list) != 1 || list[0].Origin != w.receiver.URL {
		t.Fatalf("got %+v, %v", list, err)
	}
	shown := fmt.Sprint(list, stored, w.Logged())
	for _, hidden := range []string{"s3cr3t", "/hidden", strings.TrimPrefix(hook.Secret, "whsec_")} {
		if strings.Contains(shown, hidden) {
			t.Errorf("%q is shown or stored", hidden)
		}
	}
}

// TestKinds checks the events of users, templates and agents, and that only names of changed fields are sent.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("all")
	w.deliver()
	olga := w.As("olga")
	user, err := olga.CreateUser(t.Context(), sdk.CreateUserRequest{Username: "zoe", Email: "zoe@example.com", Password: "correct horse battery", OrganizationIDs: []uuid.UUID{w.Org}})
	if err != nil {
		t.Fatal(err)
	}
	if err := olga.DeleteUser(t.Context(), user.ID.String()); err != nil {
		t.Fatal(err)
	}
	got := w.deliver()
	if all := types(got); !slices.Contains(all, "user.created") || !slices.Contains(all, "user.deleted") {
		t.Fatalf("got %q", all)
	}
	for _, m := range got {
		if text := string(m.body); strings.Contains(text, "example.com") || strings.Contains(text, "horse") {
			t.Errorf("sent %s", text)
		}
	}
	w.Template("docker", nil)
	if all := types(w.deliver()); !slices.Contains(all, "template.created") {
		t.Errorf("got %q", all)
	}
	_, agent := w.RunningRow("ann", "dev")
	w.deliver()
	w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'created', last_connected_at = now(), disconnected_at = NULL WHERE id = $1`, agent)
	w.deliver()
	for _, sql := range []string{
		`lifecycle_state = 'starting', lifecycle_changed_at = now()`, `lifecycle_state = 'ready'`, `logs_length = 7`, `lifecycle_state = 'ready'`,
		`disconnected_at = now()`, `disconnected_at = now()`, `last_connected_at = now() + interval '1 second', disconnected_at = NULL`, `lifecycle_state = 'created'`,
	} {
		w.Exec(`UPDATE workspace_agents SET `+sql+` WHERE id = $1`, agent)
	}
	got = w.deliver()
	if diff := cmp.Diff([]string{"agent.starting", "agent.ready", "agent.disconnected", "agent.connected"}, types(got)); diff != "" {
		t.Errorf("events of an agent (-want +got):\n%s", diff)
	}
	if d := got[0].Data; *d.AgentID != agent || d.AgentName == "" || d.WorkspaceName != "dev" {
		t.Errorf("got %+v", d)
	}
}

// TestRetry checks that a failed delivery is repeated with the same id, that the later ones of its subject wait and the others do not.
func TestRetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := w.add("ci", "user.*")
	one, two := uuid.New(), uuid.New()
	var ids []uuid.UUID
	w.answer = func(e sdk.LifecycleEvent) int {
		if e.Data.Username == "one" {
			ids = append(ids, e.ID)
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
	w.event("user.created", one, `{"username": "one"}`)
	w.event("user.updated", one, `{"username": "one again"}`)
	w.event("user.created", two, `{"username": "two"}`)
	if got := w.deliver(); len(got) != 1 || got[0].Data.Username != "two" {
		t.Fatalf("got %v", got)
	}
	all := w.deliveries(hook.Webhook.ID)
	if len(all) != 3 || all[2].Status != "pending" || all[2].Attempts != 1 || all[2].ResponseStatus != 503 || all[2].Excerpt != "answer 503" ||
		all[2].NextAt == nil || !strings.Contains(all[2].Error, "503") || all[1].Attempts != 0 || all[0].Status != "delivered" {
		t.Fatalf("got %+v", all)
	}
	w.due()
	if got := w.deliver(); len(got) != 0 {
		t.Fatalf("got %v", got)
	}
	if list, err := w.As("olga").Webhooks(t.Context()); err != nil || list[0].FailingSince == nil || list[0].DisabledAt != nil {
		t.Errorf("got %+v, %v", list, err)
	}
	w.answers(http.StatusOK)
	w.due()
	got := w.deliver()
	if len(got) != 2 || got[0].Data.Username != "one" || got[1].Data.Username != "one again" {
		t.Fatalf("got %v", got)
	}
	if len(ids) != 2 || ids[0] != ids[1] || ids[0] != got[0].ID {
		t.Errorf("the ids of the attempts are %v and %v", ids, got[0].ID)
	}
	if list, err := w.As("olga").Webhooks(t.Context()); err != nil || list[0].FailingSince != nil {
		t.Errorf("got %+v, %v", list, err)
	}
}

// TestDisabled checks that a webhook that fails for hours, or says that it is gone, is disabled and owners are told, and that a replay makes up for
// what it missed.
func TestDisabled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook := w.add("ci", "user.*")
	id, olga := hook.Webhook.ID, w.As("olga")
	w.answers(http.StatusInternalServerError)
	user := uuid.New()
	w.event("user.created", user, `{"username": "one"}`)
	w.deliver()
	for range 6 {
		w.due()
		w.deliver()
	}
	state := func() sdk.Webhook {
		t.Helper()
		list, err := olga.Webhooks(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("got %v, %v", list, err)
		}
		return list[0]
	}
	if state().DisabledAt != nil || w.deliveries(id)[0].Status != "pending" {
		t.Fatalf("after 7 attempts: %+v", state())
	}
	w.Exec(`UPDATE webhooks SET failing_since = now() - interval '13 hours'`)
	w.due()
	w.deliver()
	if d := w.deliveries(id)[0]; d.Status != "failed" || d.Attempts != 8 || d.FinishedAt == nil || d.NextAt != nil {
		t.Errorf("got %+v", d)
	}
	if got := state(); got.DisabledAt == nil || !strings.Contains(got.DisabledReason, "500") {
		t.Errorf("got %+v", got)
	}
	if err := w.Notifications.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	inbox, err := olga.Inbox(t.Context(), "")
	if err != nil || len(inbox.Notifications) != 1 || inbox.Notifications[0].TemplateID != notifications.WebhookDisabled.ID {
		t.Errorf("inbox %+v, %v", inbox, err)
	}
	if inbox, err := w.As("tom").Inbox(t.Context(), ""); err != nil || len(inbox.Notifications) != 0 {
		t.Errorf("another user's inbox: %+v, %v", inbox, err)
	}
	w.answers(http.StatusOK)
	w.event("user.updated", user, `{"username": "missed"}`)
	if got := w.deliver(); len(got) != 0 {
		t.Errorf("a disabled webhook got %v", got)
	}
	if err := olga.TestWebhook(t.Context(), id); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a test of a disabled webhook: %v", err)
	}
	if _, err := olga.UpdateWebhook(t.Context(), id, sdk.UpdateWebhookRequest{Enabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	since := time.Now().Add(-time.Hour)
	if n, err := olga.ReplayWebhook(t.Context(), id, sdk.ReplayWebhookRequest{Since: &since}); err != nil || n.Count != 2 {
		t.Errorf("replayed %d, %v", n.Count, err)
	}
	if got := w.deliver(); len(got) != 2 || got[0].Data.Username != "one" || got[1].Data.Username != "missed" {
		t.Errorf("replayed %v", got)
	}
	w.answers(http.StatusGone)
	w.event("user.updated", uuid.New(), `{}`)
	w.deliver()
	if got := state(); got.DisabledAt == nil {
		t.Errorf("a webhook that is gone: %+v", got)
	}
}

// TestReplay checks that a delivery is repeated with its id, and that one of another webhook is not.
func TestReplay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hook, other := w.add("ci", "user.created"), w.add("other", "template.*")
	olga := w.As("olga")
	w.event("user.created", uuid.New(), `{"username": "one"}`)
	w.event("user.updated", uuid.New(), `{"username": "unwanted"}`)
	first := w.deliver()
	if len(first) != 1 {
		t.Fatalf("got %v", first)
	}
	d := w.deliveries(hook.Webhook.ID)[0]
	if _, err := olga.ReplayWebhook(t.Context(), hook.Webhook.ID, sdk.ReplayWebhookRequest{Delivery: d.ID}); err != nil {
		t.Fatal(err)
	}
	if got := w.deliver(); len(got) != 1 || got[0].ID != first[0].ID {
		t.Errorf("got %v", got)
	}
	if all := w.deliveries(hook.Webhook.ID); len(all) != 2 || !all[0].Replay {
		t.Errorf("got %+v", all)
	}
	if _, err := olga.ReplayWebhook(t.Context(), other.Webhook.ID, sdk.ReplayWebhookRequest{Delivery: d.ID}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a delivery of another webhook: %v", err)
	}
	now := time.Now()
	for _, req := range []sdk.ReplayWebhookRequest{{}, {Delivery: d.ID, Since: &now}, {Delivery: -1}} {
		if _, err := olga.ReplayWebhook(t.Context(), hook.Webhook.ID, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", req, err)
		}
	}
	if err := olga.TestWebhook(t.Context(), other.Webhook.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.deliver(); len(got) != 1 || got[0].Type != "webhook.test" || got[0].Data.Webhook != "other" {
		t.Errorf("got %v", got)
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

// TestServers checks that several servers on one database deliver each event once, in the order of each subject.
func TestServers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("ci", "user.*")
	const subjects, events = 4, 6
	for i := range events {
		for s := range subjects {
			w.event("user.updated", uuid.UUID{15: byte(s + 1)}, fmt.Sprintf(`{"username": "%d", "build_number": %d}`, s, i+1))
		}
	}
	servers := []*webhooks.Service{w.Webhooks, w.another(loopback), w.another(loopback)}
	var running sync.WaitGroup
	for _, s := range servers {
		running.Go(func() {
			if err := s.Deliver(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	next := map[string]int32{}
	for _, m := range append(w.taken(), w.deliver()...) {
		next[m.Data.Username]++
		if m.Data.BuildNumber != next[m.Data.Username] {
			t.Errorf("subject %s: got %d, want %d", m.Data.Username, m.Data.BuildNumber, next[m.Data.Username])
		}
	}
	for s, n := range next {
		if n != events {
			t.Errorf("subject %s: %d events, want %d", s, n, events)
		}
	}
	if len(next) != subjects {
		t.Errorf("got events of %d subjects", len(next))
	}
}

// TestLateCommit checks that an event whose transaction commits after a later one gets a later number, so that no reader misses it, and that a
// transaction that is rolled back leaves none.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.add("ci", "user.*")
	insert := `SELECT lifecycle_event('user.updated', 'user', gen_random_uuid(), NULL, NULL, jsonb_build_object('username', $1::text))`
	late, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Rollback(t.Context())
	never, err := w.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer never.Rollback(t.Context())
	if _, err := late.Exec(t.Context(), insert, "late"); err != nil {
		t.Fatal(err)
	}
	if _, err := never.Exec(t.Context(), insert, "never"); err != nil {
		t.Fatal(err)
	}
	w.event("user.updated", uuid.New(), `{"username": "early"}`)
	got := w.deliver()
	if err := never.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got = append(got, w.deliver()...)
	if len(got) != 2 || got[0].Data.Username != "early" || got[1].Data.Username != "late" || got[0].Sequence >= got[1].Sequence {
		t.Errorf("got %v", got)
	}
}

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
