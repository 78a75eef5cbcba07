package events_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/events"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// heard collects what the database announces.
type heard struct {
	mu  sync.Mutex
	all []string
}

func hear(t *testing.T, w *coderdtest.Server, channel string) *heard {
	h := &heard{}
	t.Cleanup(w.PubSub.Subscribe(channel, func(payload string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.all = append(h.all, payload)
	}))
	return h
}

// await waits for an announcement, and removes it.
func (h *heard) await(t *testing.T, want string) {
	t.Helper()
	testwait.Until(t, want, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := slices.Index(h.all, want)
		if i < 0 {
			return fmt.Errorf("announced were %q", h.all)
		}
		h.all = slices.Delete(h.all, i, i+1)
		return nil
	})
}

// silent fails the test if anything was announced since the last drain.
func (h *heard) silent(t *testing.T, w *coderdtest.Server, channel string) {
	t.Helper()
	for _, got := range h.drain(t, w, channel) {
		if got != "" { // announced once, when the connection is established
			t.Errorf("%q was announced", got)
		}
	}
}

// drain returns everything announced until now, and removes it.
func (h *heard) drain(t *testing.T, w *coderdtest.Server, channel string) []string {
	t.Helper()
	mark := uuid.NewString()
	if err := w.PubSub.Publish(t.Context(), channel, mark); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the mark", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		return testwait.Unless(len(h.all) > 0 && h.all[len(h.all)-1] == mark, "announced were %q", h.all)
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.all[:len(h.all)-1]
	h.all = nil
	return all
}

// TestDatabaseAnnounces checks that every change that a page shows is announced, and nothing else.
func TestDatabaseAnnounces(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	h := hear(t, w, "events")
	said := func(kind sdk.EventKind, id, owner uuid.UUID) string {
		c := events.Change{Kind: kind, ID: id, Owner: owner}
		if kind != sdk.EventUser {
			c.Organization = w.Org
		}
		if kind == sdk.EventTemplate {
			c.Shared = w.Org.String()
		}
		return c.String()
	}
	ann := w.User("ann")
	template := w.Template("go", &provisionerpb.ImportResult{})
	h.await(t, said(sdk.EventTemplate, template.ID, uuid.Nil))
	ws := w.Workspace("ann", "dev", template.ID)
	h.await(t, said(sdk.EventWorkspace, ws.ID, ann))
	job := w.Daemon().Next()
	h.await(t, said(sdk.EventJob, ws.LatestBuild.Job.ID, ann)) // it is running
	h.await(t, said(sdk.EventBuild, ws.LatestBuild.ID, ann))
	agent := uuid.New()
	job.Finish(coderdtest.Built("state 1", coderdtest.Resource(agent)))
	h.await(t, said(sdk.EventAgent, agent, ann))
	h.await(t, said(sdk.EventWorkspace, ws.ID, ann)) // it has ended

	w.Exec(`UPDATE workspace_agents SET lifecycle_state = 'ready' WHERE id = $1`, agent)
	h.await(t, said(sdk.EventAgent, agent, ann))
	w.Exec(`UPDATE workspace_apps SET health = 'healthy' WHERE agent_id = $1`, agent)
	h.await(t, said(sdk.EventAgent, agent, ann))
	w.Exec(`UPDATE workspaces SET name = 'other' WHERE id = $1`, ws.ID)
	h.await(t, said(sdk.EventWorkspace, ws.ID, ann))
	w.Exec(`UPDATE users SET name = 'Ann' WHERE id = $1`, ann)
	h.await(t, said(sdk.EventUser, ann, ann))
	daemon := uuid.New()
	w.Exec(`INSERT INTO provisioner_daemons (id, organization_id, name, tags) VALUES ($1, $2, 'mine', jsonb_build_object('scope', 'user', 'owner', $3::text))`, daemon, w.Org, ann.String())
	h.await(t, said(sdk.EventProvisioner, daemon, ann))
	w.Exec(`DELETE FROM provisioner_daemons WHERE id = $1`, daemon)
	h.await(t, said(sdk.EventProvisioner, daemon, ann))

	h.drain(t, w, "events")
	w.Exec(`UPDATE workspaces SET last_used_at = now(), updated_at = now() WHERE id = $1`, ws.ID)
	w.Exec(`UPDATE users SET last_seen_at = now() WHERE id = $1`, ann)
	w.Exec(`UPDATE workspace_agents SET logs_length = logs_length + 1 WHERE id = $1`, agent)
	w.Exec(`UPDATE workspace_apps SET health = 'healthy' WHERE agent_id = $1`, agent)
	w.Exec(`UPDATE workspace_builds SET deadline = deadline, max_deadline = max_deadline, updated_at = now() WHERE id = $1`, ws.LatestBuild.ID)
	h.silent(t, w, "events")
}

// TestLinksAreAnnounced checks that a user's pages learn of links created in another window or by another server, but not of
// renewals.
func TestLinksAreAnnounced(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	h := hear(t, w, "events")
	ann := w.User("ann")
	changed := events.Change{Kind: sdk.EventUser, ID: ann, Owner: ann}.String()
	link := func() {
		t.Helper()
		if err := w.DB.UpsertExternalAuthLink(t.Context(), dbsqlc.UpsertExternalAuthLinkParams{UserID: ann, ProviderID: "forge", Tokens: []byte("sealed")}); err != nil {
			t.Fatal(err)
		}
	}
	link()
	h.await(t, changed)
	link() // a new sign-in
	h.await(t, changed)
	h.drain(t, w, "events")
	if _, err := w.DB.UpdateExternalAuthLink(t.Context(), dbsqlc.UpdateExternalAuthLinkParams{UserID: ann, ProviderID: "forge", Tokens: []byte("renewed")}); err != nil {
		t.Fatal(err)
	}
	h.silent(t, w, "events")
	unlink := dbsqlc.DeleteExternalAuthLinkParams{UserID: ann, ProviderID: "forge"}
	if n, err := w.DB.DeleteExternalAuthLink(t.Context(), unlink); err != nil || n != 1 {
		t.Fatalf("deleted %d links: %v", n, err)
	}
	h.await(t, changed)
	if n, err := w.DB.DeleteExternalAuthLink(t.Context(), unlink); err != nil || n != 0 {
		t.Fatalf("deleted %d links: %v", n, err)
	}
	h.silent(t, w, "events")
}

// TestDatabaseTellsOfRevocations checks that every server learns that a right was revoked, whatever revoked it.
func TestDatabaseTellsOfRevocations(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	h := hear(t, w, "users_revoked")
	tom := w.User("tom")
	w.Exec(`UPDATE users SET roles = '{}' WHERE id = $1`, tom)
	h.await(t, tom.String())
	key := `INSERT INTO api_keys (id, user_id, secret_hash, kind, lifetime_seconds, expires_at) VALUES ($1, $2, sha256('x'), $3, 60, now() + $4::interval)`
	w.Exec(key, "sessionaaa", tom, "session", "1 hour")
	w.Exec(key, "workspacea", tom, "workspace", "1 hour")
	w.Exec(key, "expiredaaa", tom, "session", "-1 hour")
	h.silent(t, w, "users_revoked")
	w.Exec(`DELETE FROM api_keys WHERE id = 'sessionaaa'`)
	h.await(t, tom.String())
	w.Exec(`DELETE FROM api_keys WHERE id = 'workspacea'`)
	h.await(t, tom.String())
	w.Exec(`DELETE FROM api_keys WHERE id = 'expiredaaa'`)
	w.Exec(`UPDATE users SET name = 'Tom', last_seen_at = now() WHERE id = $1`, tom)
	h.silent(t, w, "users_revoked")
	w.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, tom)
	h.await(t, tom.String())
}
