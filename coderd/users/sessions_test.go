package users_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// from makes a request as a program at an address.
func (p person) from(agent, addr string) {
	p.t.Helper()
	r := httptest.NewRequest("GET", "/api/v2/users/me", http.NoBody)
	r.Header.Set("Coder-Session-Token", p.token)
	r.Header.Set("User-Agent", agent)
	r.RemoteAddr = addr
	w := httptest.NewRecorder()
	if p.Mux.ServeHTTP(w, r); w.Code != 200 {
		p.t.Errorf("%s from %s: %d %s", p.name, addr, w.Code, w.Body)
	}
}

func TestSessions(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	laptop := person{a, "alice's laptop", alice.id, a.login("alice@example.com")}
	token := person{a, "alice's token", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{}).Key}
	laptop.from("Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0", "198.51.100.7:4711")

	byID := func(p person) map[string]sdk.UserSession {
		t.Helper()
		out := map[string]sdk.UserSession{}
		for _, s := range call[[]sdk.UserSession](p, 200, "GET", "users/alice/sessions", nil) {
			out[s.ID] = s
		}
		return out
	}
	mine := byID(alice)
	if len(mine) != 2 || !mine[alice.token[:10]].Current || mine[laptop.token[:10]].Current {
		t.Errorf("alice's sessions: %+v", mine)
	}
	// What was unknown is recorded at the first use, and after a minute again.
	if s := mine[laptop.token[:10]]; s.Device != "Firefox on Linux" || s.Address != "198.51.100.7" {
		t.Errorf("the laptop's session: %+v", s)
	}
	laptop.from("coder/v2.31.10001", "198.51.100.8:4711")
	if s := byID(alice)[laptop.token[:10]]; s.Address != "198.51.100.7" {
		t.Errorf("written again within a minute: %+v", s)
	}
	a.Exec("UPDATE api_keys SET last_used_at = now() - interval '61 seconds' WHERE id = $1", laptop.token[:10])
	laptop.from("coder/v2.31.10001"+strings.Repeat("x", 1000), "198.51.100.8:4711")
	if s := byID(owner)[laptop.token[:10]]; s.Device != "coder command line" || s.Address != "198.51.100.8" || len(s.UserAgent) != 256 || s.Current {
		t.Errorf("the laptop's session, as the owner sees it: %+v", s)
	}

	// One, all others, and all: tokens live on.
	phone := person{a, "alice's phone", alice.id, a.login("alice@example.com")}
	alice.want(204, "DELETE", "users/me/sessions/"+laptop.token[:10], nil)
	laptop.want(401, "GET", "users/me", nil)
	alice.want(404, "DELETE", "users/me/sessions/"+laptop.token[:10], nil)
	alice.want(404, "DELETE", "users/me/sessions/"+token.token[:10], nil) // no session
	a.wasRevoked(alice.id)
	alice.want(204, "DELETE", "users/me/sessions?except_current=true", nil)
	if !a.wasRevoked(alice.id) {
		t.Error("the end of the sessions was not announced")
	}
	if why := phone.want(401, "GET", "users/me", nil); !bytes.Contains(why, []byte("You signed out everywhere.")) {
		t.Errorf("the phone is told %s", why)
	}
	alice.want(200, "GET", "users/me", nil)
	owner.want(204, "DELETE", "users/alice/sessions", nil)
	if why := alice.want(401, "GET", "users/me", nil); !bytes.Contains(why, []byte("An administrator signed you out")) {
		t.Errorf("alice is told %s", why)
	}
	token.want(200, "GET", "users/me", nil)
	if rest := byID(owner); len(rest) != 0 {
		t.Errorf("sessions that have ended are listed: %+v", rest)
	}
	owner.want(204, "DELETE", "users/me/sessions", nil)
	owner.want(401, "GET", "users/me", nil)
}

// TestManySessions checks that a list of sessions goes on where an answer ends, for their user and for those who manage
// the account only.
func TestManySessions(t *testing.T) {
	t.Parallel()
	const many = 1200
	a := newAPI(t)
	owner := a.first()
	alice, mallory := owner.add("alice"), owner.add("mallory")
	a.Exec(`INSERT INTO api_keys (id, user_id, secret_hash, name, kind, lifetime_seconds, expires_at, last_used_at)
		SELECT lpad(i::text, 10, '0'), user_id, secret_hash, '', kind, lifetime_seconds, expires_at, now() - i * interval '1 hour'
		FROM api_keys, generate_series(1, $2::int) i WHERE id = $1`, alice.token[:10], many)
	newest := call[[]sdk.UserSession](alice, 200, "GET", "users/me/sessions", nil)
	if len(newest) != 1000 || !newest[0].Current {
		t.Fatalf("the first answer has %d sessions: %+v", len(newest), newest[:min(len(newest), 1)])
	}
	for _, p := range []person{alice, owner} {
		rest := call[[]sdk.UserSession](p, 200, "GET", "users/alice/sessions?limit=1000&offset=1000", nil)
		if len(rest) != many+1-1000 || rest[0].ID != "0000001000" || rest[len(rest)-1].ID != "0000001200" {
			t.Errorf("%s reads %d sessions after it", p.name, len(rest))
		}
	}
	if end := call[[]sdk.UserSession](alice, 200, "GET", "users/me/sessions?offset=1201", nil); len(end) != 0 {
		t.Errorf("after the last one: %+v", end)
	}
	alice.want(400, "GET", "users/me/sessions?limit=1001", nil)
	alice.want(400, "GET", "users/me/sessions?offset=-1", nil)
	mallory.want(404, "GET", "users/alice/sessions?limit=1000&offset=1000", nil)
	a.nobody().want(401, "GET", "users/alice/sessions?limit=1000&offset=1000", nil)
	// The last one ends as the first does.
	alice.want(204, "DELETE", "users/me/sessions/0000001200", nil)
	if rest := call[[]sdk.UserSession](alice, 200, "GET", "users/me/sessions?limit=1000&offset=1000", nil); len(rest) != 200 {
		t.Errorf("%d sessions are left after the first answer", len(rest))
	}
}

// TestSessionsAttacker checks that sessions are read and ended by their user and by those who may manage the account, and by no others.
func TestSessionsAttacker(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, mallory := owner.add("alice"), owner.add("mallory")
	admin, auditor, templates := owner.add("una", "user-admin"), owner.add("ann", "auditor"), owner.add("tad", "template-admin")
	limited := person{a, "alice's token", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens",
		sdk.CreateTokenRequest{Scopes: []string{"workspace:read"}}).Key}
	paths := func(user string) [][2]string {
		id := map[string]string{"alice": alice.token[:10], "admin": owner.token[:10], "ann": auditor.token[:10], "una": admin.token[:10]}[user]
		return [][2]string{
			{"GET", "users/" + user + "/sessions"}, {"DELETE", "users/" + user + "/sessions"}, {"DELETE", "users/" + user + "/sessions/" + id},
		}
	}
	for _, attacker := range []person{mallory, templates} {
		for _, p := range paths("alice") {
			got := attacker.want(404, p[0], p[1], nil)
			if other := attacker.want(404, p[0], strings.Replace(p[1], "alice", "absent", 1), nil); !bytes.Equal(got, other) {
				t.Errorf("%s learns that alice exists: %s, not %s", attacker.name, got, other)
			}
		}
		// Another user's session is not among one's own.
		attacker.want(404, "DELETE", "users/me/sessions/"+alice.token[:10], nil)
	}
	for _, p := range paths("alice") {
		auditor.want(403, p[0], p[1], nil)
		limited.want(403, p[0], p[1], nil)
	}
	// A user admin reaches no user with a role that they lack.
	for _, user := range []string{"admin", "ann"} {
		for _, p := range paths(user) {
			admin.want(403, p[0], p[1], nil)
		}
	}
	for _, p := range []person{owner, alice, auditor} {
		p.want(200, "GET", "users/me", nil)
	}
	admin.want(200, "GET", "users/alice/sessions", nil)
	admin.want(204, "DELETE", "users/alice/sessions/"+alice.token[:10], nil)
	alice.want(401, "GET", "users/me", nil)
	a.nobody().want(401, "GET", "users/alice/sessions", nil)
}
