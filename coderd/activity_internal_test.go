package coderd

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/coordinator"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/tailnet"
)

// TestUsesAreNoted: a mesh connection of many days keeps its session alive, also after a note that failed; without one nothing is written.
func TestUsesAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var connected, fail atomic.Bool
		var notes [][]string
		sessions := func() []string {
			if !connected.Load() {
				return nil
			}
			return []string{"a", "b"}
		}
		u := activity{log: slog.New(slog.DiscardHandler), sessions: sessions, note: func(_ context.Context, ids ...string) error {
			if fail.Load() {
				return errors.New("the database is away")
			}
			notes = append(notes, ids)
			return nil
		}}
		ended := make(chan struct{})
		go func() { defer close(ended); u.run(ctx) }()
		time.Sleep(24*time.Hour + time.Minute)
		synctest.Wait()
		if len(notes) != 0 {
			t.Errorf("nothing is connected: %d notes", len(notes))
		}
		connected.Store(true)
		fail.Store(true)
		time.Sleep(time.Hour)
		synctest.Wait()
		fail.Store(false)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([][]string{{"a", "b"}, {"a", "b"}}, notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
		cancel()
		<-ended
	})
}

// TestMeshConnectionKeepsItsSession: a connected client's session lives on, a session that nothing uses does not, and a token keeps its
// end. A session that has ended is not revived by a client that is still connected.
func TestMeshConnectionKeepsItsSession(t *testing.T) {
	d := newDeployment(t)
	d.call(d.owner, "POST", "/users", sdk.CreateUserRequest{Email: "ann@example.com", Username: "ann", Password: firstPassword}, nil)
	used, idle, deleted, expired := d.login("ann", firstPassword), d.login("ann", firstPassword), d.login("ann", firstPassword), d.login("ann", firstPassword)
	var token sdk.CreateTokenResponse
	d.call(used, "POST", "/users/me/keys/tokens", sdk.CreateTokenRequest{Lifetime: 48 * time.Hour, TokenName: "fixed"}, &token)
	all := map[string]string{"used": used, "idle": idle, "deleted": deleted, "expired": expired, "token": token.Key}
	for name, session := range all {
		if name == "idle" {
			continue
		}
		_, client := joinMesh(t, d.base, coordinator.KindClient, http.Header{sdk.SessionHeader: {session}}, tailnet.InboundNone)
		if _, err := client.Welcome(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ids := d.mesh.Sessions()
	if len(ids) != 4 {
		t.Fatalf("sessions of connected clients: %v", ids)
	}
	// Two hours later, as far as the database knows. What has ended is not looked for: the connections still count as connected.
	d.exec(`UPDATE api_keys SET last_used_at = now() - interval '2 hours', expires_at = now() + interval '1 hour' WHERE kind <> 'workspace'`)
	d.exec(`DELETE FROM api_keys WHERE id = $1`, keyOf(deleted))
	d.exec(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = $1`, keyOf(expired))
	left := func() map[string]time.Duration {
		out := map[string]time.Duration{}
		for name, session := range all {
			var seconds float64
			err := d.opts.DB.Pool.QueryRow(t.Context(), `SELECT extract(epoch FROM expires_at - now())::float8 FROM api_keys WHERE id = $1`, keyOf(session)).Scan(&seconds)
			if err == nil {
				out[name] = time.Duration(seconds * float64(time.Second)).Round(time.Hour)
			}
		}
		return out
	}
	note := func(ids []string) {
		t.Helper()
		u := d.activity
		u.sessions = func() []string { return ids }
		if err := u.once(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	note(ids)
	week := 7 * 24 * time.Hour
	want := map[string]time.Duration{"used": week, "idle": time.Hour, "token": time.Hour, "expired": 0}
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("time that is left (-want +got):\n%s", diff)
	}

	// It is written once an hour.
	d.exec(`UPDATE api_keys SET last_used_at = now() - interval '10 minutes', expires_at = now() + interval '1 hour' WHERE id = $1`, keyOf(used))
	note(ids)
	want["used"] = time.Hour
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("noted twice within an hour (-want +got):\n%s", diff)
	}

	// A suspended user's sessions have ended; a row that was kept or came back is not extended either.
	d.exec(`UPDATE api_keys SET last_used_at = now() - interval '2 hours'`)
	d.exec(`UPDATE users SET status = 'suspended' WHERE username = 'ann'`)
	note(ids)
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("of a suspended user (-want +got):\n%s", diff)
	}
}
