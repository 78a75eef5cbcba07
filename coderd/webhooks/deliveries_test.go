package webhooks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/webhooks"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/webhook"
)

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
