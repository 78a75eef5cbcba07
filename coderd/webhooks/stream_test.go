package webhooks_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// reader is an open stream.
type reader struct {
	t     *testing.T
	lines *bufio.Scanner
}

// follow opens a stream after a number, "" meaning the newest.
func (w *world) follow(t *testing.T, user, after string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL.String()+"/api/v2/events/lifecycle", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(sdk.SessionHeader, w.Token(user))
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	client := &http.Client{Transport: &http.Transport{}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	t.Cleanup(func() { resp.Body.Close() })
	t.Cleanup(cancel)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d", user, resp.StatusCode)
	}
	x := &reader{t, bufio.NewScanner(resp.Body)}
	if kind, _, _ := x.next(); kind != "ready" {
		t.Fatalf("the first event is %q", kind)
	}
	return x
}

// next returns the type, the id and the event that comes next, or "" if the stream has ended.
func (x *reader) next() (kind, id string, e sdk.LifecycleEvent) {
	x.t.Helper()
	for x.lines.Scan() {
		name, value, _ := strings.Cut(x.lines.Text(), ": ")
		switch name {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				x.t.Fatal(err)
			}
		case "":
			if kind != "" {
				return kind, id, e
			}
		}
	}
	return "", "", e
}

// numbered numbers what has happened.
func (w *world) numbered() {
	w.T.Helper()
	if err := w.Webhooks.Deliver(w.T.Context()); err != nil {
		w.T.Fatal(err)
	}
}

// TestStream checks that readers see the events of what they may read, resume after a number, and see who acted only if they read the audit log.
func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anns, bobs := w.WorkspaceRow("ann", "dev"), w.WorkspaceRow("bob", "dev")
	w.numbered()
	ann, bob, olga := w.follow(t, "ann", ""), w.follow(t, "bob", ""), w.follow(t, "olga", "")
	happens := func(workspace uuid.UUID, name string) {
		w.Exec(`SELECT lifecycle_event_of_workspace('workspace.updated', 'workspace', $1, jsonb_build_object('actor', 'mallory', 'reason', $2::text))`, workspace, name)
		w.numbered()
	}
	happens(bobs, "first")
	happens(anns, "second")
	kind, id, e := ann.next()
	if kind != "workspace.updated" || e.Data.Reason != "second" || e.Data.OwnerName != "ann" || e.Data.Actor != "" {
		t.Errorf("ann sees %s %+v", kind, e)
	}
	if _, _, e := bob.next(); e.Data.Reason != "first" {
		t.Errorf("bob sees %+v", e)
	}
	_, first, e := olga.next()
	if e.Data.Reason != "first" || e.Data.Actor != "mallory" {
		t.Errorf("olga sees %+v", e)
	}
	if _, next, e := olga.next(); e.Data.Reason != "second" || next != id {
		t.Errorf("olga sees %s %+v", next, e)
	}
	// Who comes back sees what came after, and who is new only what comes.
	if _, _, e := w.follow(t, "olga", first).next(); e.Data.Reason != "second" {
		t.Errorf("resumed at %+v", e)
	}
	// A workspace that is shared is seen from then on.
	w.Exec(`UPDATE workspaces SET sharing = jsonb_build_object($2::text, 'use') WHERE id = $1`, anns, w.User("bob"))
	happens(anns, "third")
	if _, _, e := bob.next(); e.Data.Reason != "third" {
		t.Errorf("bob sees %+v", e)
	}
}

// TestStreamAttackers checks that a stream ends with its session, that a user has only some, and that a number must be one.
func TestStreamAttackers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anns := w.WorkspaceRow("ann", "dev")
	x := w.follow(t, "ann", "")
	w.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, w.User("ann"))
	w.Exec(`SELECT lifecycle_event_of_workspace('workspace.updated', 'workspace', $1, '{}')`, anns)
	w.numbered()
	if kind, _, e := x.next(); kind != "" {
		t.Errorf("a suspended user sees %s %+v", kind, e)
	}
	for range 10 {
		w.follow(t, "bob", "0")
	}
	for after, want := range map[string]int{"1": http.StatusTooManyRequests, "x": http.StatusBadRequest, "-1": http.StatusBadRequest, "99999999999999999999": http.StatusBadRequest} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/events/lifecycle?after="+after, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sdk.SessionHeader, w.Token("bob"))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("after %s: status %d, want %d", after, resp.StatusCode, want)
		}
	}
}
