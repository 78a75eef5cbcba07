package users_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestBadTokens checks that a token is refused unless it belongs to a living session.
func TestBadTokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	id, half := owner.token[:10], owner.token[11:]
	for name, token := range map[string]string{
		"another secret":  id + "-" + strings.Repeat("A", 22),
		"another id":      strings.Repeat("A", 10) + "-" + half,
		"cut off":         owner.token[:20],
		"empty secret":    id + "-",
		"with more":       owner.token + "x",
		"no form at all":  "'; DROP TABLE users; --",
		"only the id":     id,
		"spaces around":   " " + owner.token,
		"null in it":      id + "-" + half[:21] + "\x00",
		"hash as secret":  id + "-" + strings.Repeat("0", 22),
		"unicode letters": id + "-" + strings.Repeat("ä", 11),
	} {
		if status, _ := (person{a, name, uuid.Nil, token}).send("GET", "users/me", nil); status != 401 {
			t.Errorf("%s: got %d, want 401", name, status)
		}
	}
	owner.want(200, "GET", "users/me", nil)
	a.Exec("UPDATE api_keys SET expires_at = now() - interval '1 second'")
	if text := owner.want(401, "GET", "users/me", nil); !strings.Contains(string(text), "expired") {
		t.Errorf("an expired session: %s", text)
	}
}

// TestSliding checks that use extends a session, though not every request is written, and that a token ends at its fixed
// expiry.
func TestSliding(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	token := person{a, "token", owner.id, call[sdk.CreateTokenResponse](owner, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "t"}).Key}
	type key struct{ Used, Ends string }
	read := func(p person) (k key) {
		t.Helper()
		if err := a.DB.Pool.QueryRow(t.Context(), "SELECT last_used_at::text, expires_at::text FROM api_keys WHERE id = $1", p.token[:10]).Scan(&k.Used, &k.Ends); err != nil {
			t.Fatal(err)
		}
		return k
	}
	for _, p := range []person{owner, token} {
		before := read(p)
		p.want(200, "GET", "users/me", nil)
		if after := read(p); after != before {
			t.Errorf("%s: a request wrote the key: %v, then %v", p.name, before, after)
		}
		a.Exec("UPDATE api_keys SET last_used_at = now() - interval '2 hours', expires_at = now() + interval '1 hour' WHERE id = $1", p.token[:10])
		before = read(p)
		p.want(200, "GET", "users/me", nil)
		after := read(p)
		if after.Used == before.Used {
			t.Errorf("%s: use after two hours was not noted", p.name)
		}
		if moved := after.Ends != before.Ends; moved != (p.name == "admin") {
			t.Errorf("%s: its end moved: %t", p.name, moved)
		}
	}
	if me := call[sdk.User](owner, 200, "GET", "users/me", nil); me.LastSeenAt == nil {
		t.Error("the user was not seen")
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	made := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci", Lifetime: 3600e9})
	alice.want(409, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"})
	alice.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "x", Lifetime: -1})
	alice.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "no\ngood"})
	whole := sdk.CreateTokenRequest{TokenName: "whole", Scope: "all", Scopes: []string{"coder:all"}, AllowList: []string{"*:*"}}
	call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", whole)
	alice.want(204, "DELETE", "users/me/keys/"+call[sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens/whole", nil).ID, nil)
	call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{})
	if cfg := call[sdk.TokenConfig](alice, 200, "GET", "users/me/keys/tokens/tokenconfig", nil); cfg.MaxTokenLifetime <= 0 {
		t.Errorf("token config: %+v", cfg)
	}
	list := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil)
	if len(list) != 2 || list[0].TokenName != "ci" || list[0].LifetimeSeconds != 3600 || list[0].ID != made.Key[:10] {
		t.Errorf("tokens: %+v", list)
	}
	if key := call[sdk.APIKey](alice, 200, "GET", "users/me/keys/"+made.Key[:10], nil); key.TokenName != "ci" {
		t.Errorf("key: %+v", key)
	}
	// An expired token is refused at once, and listed for requests that ask for expired tokens.
	over := person{a, "expired", uuid.Nil, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "over"}).Key}
	over.want(200, "GET", "users/me", nil)
	a.wasRevoked(alice.id)
	alice.want(204, "PUT", "users/me/keys/"+over.token[:10]+"/expire", nil)
	over.want(401, "GET", "users/me", nil)
	if !a.wasRevoked(alice.id) {
		t.Error("the end of the token was not announced")
	}
	alice.want(204, "PUT", "users/me/keys/"+over.token[:10]+"/expire", nil)
	alice.want(404, "PUT", "users/me/keys/0123456789/expire", nil)
	if all := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens?include_expired=true", nil); len(all) != 3 {
		t.Errorf("with the expired: %+v", all)
	}
	if good := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil); len(good) != 2 {
		t.Errorf("without: %+v", good)
	}
	if second := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens?limit=1&offset=1", nil); len(second) != 1 || second[0].ID != list[1].ID {
		t.Errorf("the second page: %+v", second)
	}
	alice.want(400, "GET", "users/me/keys/tokens?limit=1001", nil)
	call[sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens/ci", nil)
	session := person{a, "new session", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys", nil).Key}
	session.want(200, "GET", "users/me", nil)
	alice.want(204, "DELETE", "users/me/keys/"+made.Key[:10], nil)
	if !a.wasRevoked(alice.id) {
		t.Error("nobody was told that a token is gone")
	}
	alice.want(404, "DELETE", "users/me/keys/"+made.Key[:10], nil)
	(person{a, "gone", alice.id, made.Key}).want(401, "GET", "users/me", nil)
}

// TestWorkspaceSession checks that the token that a template can read acts for its user, without an owner's powers and
// without creating other credentials, and that it ends with the next build and with the workspace.
func TestWorkspaceSession(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	workspace := a.workspace("admin")
	token, err := a.Users.SessionFor(t.Context(), a.DB.Queries, owner.id, workspace)
	if err != nil {
		t.Fatal(err)
	}
	inside := person{a, "inside the workspace", owner.id, token.Reveal()}
	inside.want(200, "GET", "users/me", nil)
	inside.want(404, "GET", "users/alice", nil)
	inside.want(403, "POST", "users", sdk.CreateUserRequest{Email: "x@example.com", Username: "x", Password: password})
	inside.want(403, "POST", "users/me/keys", nil)
	inside.want(403, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{})
	inside.want(403, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: "Another-Password-1"})
	inside.want(403, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}})
	inside.want(403, "PUT", "users/me/gitsshkey", nil)
	inside.want(201, "POST", "files", raw{sdk.ContentTypeTar, tarOf(t, entry{name: "main.tf", text: "x"})})
	if tokens := call[[]sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens", nil); len(tokens) != 0 {
		t.Errorf("tokens: %+v", tokens)
	}

	next, err := a.Users.SessionFor(t.Context(), a.DB.Queries, owner.id, workspace)
	if err != nil {
		t.Fatal(err)
	}
	inside.want(401, "GET", "users/me", nil)
	inside.token = next.Reveal()
	inside.want(200, "GET", "users/me", nil)
	inside.want(200, "POST", "users/logout", nil)
	inside.want(401, "GET", "users/me", nil)
}

// TestHolder checks that what was signed for a key is worthless once the key has ended.
func TestHolder(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	ann := admin.add("ann")
	id, _, _ := strings.Cut(ann.token, "-")
	got, err := a.Users.Holder(t.Context(), id)
	if err != nil || got.UserID != ann.id || got.KeyID != id || got.FromWorkspace {
		t.Errorf("holder: %+v, %v", got, err)
	}
	ended := func(what string) {
		t.Helper()
		if _, err := a.Users.Holder(t.Context(), id); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%s: %v", what, err)
		}
	}
	a.Exec(`UPDATE users SET status = 'suspended' WHERE id = $1`, ann.id)
	ended("suspended")
	a.Exec(`UPDATE users SET status = 'active' WHERE id = $1`, ann.id)
	a.Exec(`UPDATE api_keys SET expires_at = now() WHERE id = $1`, id)
	ended("expired")
	a.Exec(`DELETE FROM api_keys WHERE id = $1`, id)
	ended("deleted")
	if _, err := a.Users.Holder(t.Context(), ""); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("no key: %v", err)
	}
}

// TestScopesOfTokens checks that a token shows its scopes, that an unknown scope or a malformed entry is refused with the known ones, and
// that a server of before scopes would not accept a limited token.
func TestScopesOfTokens(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	const list = "workspace:11111111-1111-4111-8111-111111111111"
	for field, bad := range map[string]sdk.CreateTokenRequest{
		"scopes":     {TokenName: "narrow", Scopes: []string{"workspace:read", "workspace:fly"}},
		"scope":      {TokenName: "narrow", Scope: "workspace:read"},
		"allow_list": {TokenName: "narrow", AllowList: []string{"workspace:one"}},
	} {
		text := string(alice.want(400, "POST", "users/me/keys/tokens", bad))
		if !strings.Contains(text, `"field":"`+field+`"`) || field == "scopes" && !strings.Contains(text, "workspace:read") {
			t.Errorf("bad %s: %s", field, text)
		}
	}
	alice.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Scope: "application_connect", Scopes: []string{"workspace:read"}})
	alice.want(404, "GET", "users/me/keys/tokens/narrow", nil)
	for name, c := range map[string]struct {
		req           sdk.CreateTokenRequest
		scope         string
		scopes, allow []string
	}{
		"whole":  {sdk.CreateTokenRequest{Scope: "all", AllowList: []string{"*:*"}}, "all", []string{"all"}, []string{"*:*"}},
		"narrow": {sdk.CreateTokenRequest{Scope: "all", Scopes: []string{"workspace:read"}, AllowList: []string{list}}, "", []string{"workspace:read"}, []string{list}},
		"listed": {sdk.CreateTokenRequest{AllowList: []string{list}}, "", []string{"all"}, []string{list}},
		"apps":   {sdk.CreateTokenRequest{Scope: "application_connect"}, "application_connect", []string{"application_connect"}, []string{"*:*"}},
	} {
		c.req.TokenName = name
		call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", c.req)
		got := call[sdk.APIKey](alice, 200, "GET", "users/me/keys/tokens/"+name, nil)
		if got.Scope != c.scope || !slices.Equal(got.Scopes, c.scopes) || !slices.Equal(got.AllowList, c.allow) {
			t.Errorf("%s: %q %v %v", name, got.Scope, got.Scopes, got.AllowList)
		}
	}
	if catalog := call[sdk.ScopeCatalog](alice, 200, "GET", "auth/scopes", nil); !slices.Contains(catalog.External, "workspace:read") {
		t.Errorf("catalogue: %v", catalog)
	}
	token := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Scopes: []string{"workspace:read"}}).Key
	limited := person{a, "limited", alice.id, token}
	limited.want(200, "GET", "users/me", nil)
	limited.want(403, "GET", "users/me/keys/tokens", nil)
	limited.want(403, "POST", "users/logout", nil)
	// Without its limits, as an earlier release reads it, the token is nobody's.
	a.Exec("UPDATE api_keys SET scopes = NULL, allow_list = NULL WHERE id = $1", token[:10])
	limited.want(401, "GET", "users/me", nil)
	// Nor is one with a scope that only a later release knows.
	a.Exec("UPDATE api_keys SET scopes = ARRAY['workspace:teleport'] WHERE id = $1", token[:10])
	limited.want(401, "GET", "users/me", nil)
}

// TestLifetimes checks the settings for lifetimes, and that tokenconfig reports the maximum that is enforced.
func TestLifetimes(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for what, bad := range map[string]users.Lifetimes{
		"--session-duration": {Session: time.Minute}, "--max-token-lifetime": {MaxToken: -1}, "--max-admin-token-lifetime": {MaxAdminToken: time.Second},
		"--default-token-lifetime": {Token: 48 * hour, MaxToken: 24 * hour},
	} {
		if err := bad.Check(); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	for _, good := range []users.Lifetimes{{}, {MaxToken: 24 * hour}, {Session: hour, MaxToken: 48 * hour, Token: hour, MaxAdminToken: hour}} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	a := newAPI(t, func(o *coderd.Options) {
		o.Lifetimes = users.Lifetimes{Session: 2 * hour, MaxToken: 48 * hour, MaxAdminToken: 24 * hour}
	})
	owner := a.first()
	alice := owner.add("alice")
	lifetime := func(token string) (seconds int64) {
		t.Helper()
		if err := a.DB.Pool.QueryRow(t.Context(), "SELECT lifetime_seconds FROM api_keys WHERE id = $1", token[:10]).Scan(&seconds); err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	if got := lifetime(alice.token); got != 7200 {
		t.Errorf("a session lasts %d s", got)
	}
	for _, c := range []struct {
		who person
		max time.Duration
	}{{alice, 48 * hour}, {owner, 24 * hour}} {
		config := call[sdk.TokenConfig](c.who, 200, "GET", "users/me/keys/tokens/tokenconfig", nil)
		if config.MaxTokenLifetime != c.max || config.DefaultTokenLifetime != c.max {
			t.Errorf("%s: %+v", c.who.name, config)
		}
		if text := c.who.want(400, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Lifetime: c.max + time.Second}); !strings.Contains(string(text), c.max.String()) {
			t.Errorf("too long: %s", text)
		}
		call[sdk.CreateTokenResponse](c.who, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{Lifetime: c.max})
		if got := lifetime(call[sdk.CreateTokenResponse](c.who, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{}).Key); got != int64(c.max.Seconds()) {
			t.Errorf("%s: a token without a lifetime lasts %d s", c.who.name, got)
		}
	}
}

// TestNameOfExpiredToken checks that a name is free again once its token has expired, and taken before.
func TestNameOfExpiredToken(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	create := sdk.CreateTokenRequest{TokenName: "laptop"}
	token := call[sdk.CreateTokenResponse](owner, 201, "POST", "users/me/keys/tokens", create)
	owner.want(409, "POST", "users/me/keys/tokens", create)
	owner.want(204, "PUT", "users/me/keys/"+token.Key[:10]+"/expire", nil)
	again := call[sdk.CreateTokenResponse](owner, 201, "POST", "users/me/keys/tokens", create)
	if again.Key == token.Key {
		t.Error("the expired token came back")
	}
}

// TestSearchByLogin checks the search for users by how they sign in, and that their sessions show it.
func TestSearchByLogin(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	for _, name := range []string{"hub", "okta", "enterprise"} {
		call[sdk.User](owner, 201, "POST", "users", sdk.CreateUserRequest{Email: name + "@example.com", Username: name, LoginType: sdk.LoginGitHub})
	}
	a.Exec(`UPDATE users SET login_type = 'oidc' WHERE username = 'okta'`)
	for name, issuer := range map[string]string{"hub": "https://github.com", "enterprise": "https://git.example.com"} {
		a.Exec(`INSERT INTO user_links (user_id, login_type, issuer, subject) SELECT id, 'github', $2, '583231' FROM users WHERE username = $1`, name, issuer)
	}
	for q, want := range map[string]string{
		"login_type:github": "enterprise hub", "login_type:oidc": "okta", "login_type:OIDC+login_type:github": "enterprise hub okta", "login_type:none": "",
		"github_com_user_id:583231": "hub", "github_com_user_id:1": "", "github_com_user_id:583231+login_type:oidc": "",
	} {
		var got []string
		for _, u := range call[sdk.UsersResponse](owner, 200, "GET", "users?q="+q, nil).Users {
			got = append(got, u.Username)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q", q, got, want)
		}
	}
	for _, q := range []string{"login_type:magic", "login_type:", "github_com_user_id:hub", "github_com_user_id:1%27"} {
		owner.want(400, "GET", "users?q="+q, nil)
	}
	id, _, _ := strings.Cut(a.Session("okta").Reveal(), "-")
	if key := call[sdk.APIKey](owner, 200, "GET", "users/okta/keys/"+id, nil); key.LoginType != sdk.LoginOIDC {
		t.Errorf("a session of an OIDC user has the login type %q", key.LoginType)
	}
	id, _, _ = strings.Cut(owner.token, "-")
	if key := call[sdk.APIKey](owner, 200, "GET", "users/me/keys/"+id, nil); key.LoginType != sdk.LoginPassword {
		t.Errorf("a session of a password user has the login type %q", key.LoginType)
	}
}
