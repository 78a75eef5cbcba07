package coderd_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// TestMeshConnectionKeepsItsSession: a connected client's session lives on, a session that nothing uses does not, and a token keeps its
// end. A session that has ended is not revived by a client that is still connected.
func TestMeshConnectionKeepsItsSession(t *testing.T) {
	s := coderdtest.Start(t)
	used, idle, deleted, expired := s.Session("ann").Reveal(), s.Session("ann").Reveal(), s.Session("ann").Reveal(), s.Session("ann").Reveal()
	token, err := s.With(secret.Token(used)).CreateToken(t.Context(), sdk.Me, sdk.CreateTokenRequest{Lifetime: 48 * time.Hour, TokenName: "fixed"})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"used": used, "idle": idle, "deleted": deleted, "expired": expired, "token": token.Key}
	for name, session := range all {
		if name == "idle" {
			continue
		}
		s.Join(coderdtest.AsUser(session))
	}
	ids := s.Mesh.Sessions()
	if len(ids) != 4 {
		t.Fatalf("sessions of connected clients: %v", ids)
	}
	// Two hours later, as far as the database knows. What has ended is not looked for: the connections still count as connected.
	s.Exec(`UPDATE api_keys SET last_used_at = now() - interval '2 hours', expires_at = now() + interval '1 hour' WHERE kind <> 'workspace'`)
	s.Exec(`DELETE FROM api_keys WHERE id = $1`, keyOf(deleted))
	s.Exec(`UPDATE api_keys SET expires_at = now() - interval '1 second' WHERE id = $1`, keyOf(expired))
	left := func() map[string]time.Duration {
		out := map[string]time.Duration{}
		for name, session := range all {
			var seconds float64
			err := s.DB.Pool.QueryRow(t.Context(), `SELECT extract(epoch FROM expires_at - now())::float8 FROM api_keys WHERE id = $1`, keyOf(session)).Scan(&seconds)
			if err == nil {
				out[name] = time.Duration(seconds * float64(time.Second)).Round(time.Hour)
			}
		}
		return out
	}
	note := func(ids []string) {
		t.Helper()
		if err := s.Users.Used(t.Context(), ids...); err != nil {
			t.Fatal(err)
		}
	}
	note(ids)
	week := 7 * 24 * time.Hour
	want := map[string]time.Duration{"used": week, "idle": time.Hour, "token": time.Hour, "expired": 0}
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("time that is left (-want +got):\n%s", diff)
	}

	// It is written once a minute.
	s.Exec(`UPDATE api_keys SET last_used_at = now() - interval '30 seconds', expires_at = now() + interval '1 hour' WHERE id = $1`, keyOf(used))
	note(ids)
	want["used"] = time.Hour
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("noted twice within a minute (-want +got):\n%s", diff)
	}

	// A suspended user's sessions have ended; a row that was kept or came back is not extended either.
	s.Exec(`UPDATE api_keys SET last_used_at = now() - interval '2 hours'`)
	s.Exec(`UPDATE users SET status = 'suspended' WHERE username = 'ann'`)
	note(ids)
	if diff := cmp.Diff(want, left()); diff != "" {
		t.Errorf("of a suspended user (-want +got):\n%s", diff)
	}
}
