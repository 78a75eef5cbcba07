package users_test

import (
	"testing"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestNamesForTerminals checks that no name that other users' terminals and pages show contains a control character, or one that reorders
// text.
func TestNamesForTerminals(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	for what, bad := range map[string]string{
		"an escape": "Al\x1b[2Jice", "a title": "Al\x1b]0;root\aice", "a C1 control": "Al\u009b2Jice", "a carriage return": "Al\rice", "a line": "Al\nice",
		"a bell": "Al\aice", "an override": "ecila\u202e", "an isolate": "Al\u2066ice", "a zero byte": "Al\x00ice", "a deletion": "Al\x7fice",
	} {
		alice.want(400, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "alice", Name: bad})
		alice.want(400, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: bad, Name: "Alice"})
		owner.want(400, "POST", "users", sdk.CreateUserRequest{Email: "bob@example.com", Username: "bob", Name: bad, Password: password})
		if me := call[sdk.User](alice, 200, "GET", "users/me", nil); me.Username != "alice" || me.Name != "" {
			t.Errorf("%s: %q, %q", what, me.Username, me.Name)
		}
	}
	for _, good := range []string{"Álice Ñoño", "アリス", "O'Alice (QA)", "أليس"} {
		if me := call[sdk.User](alice, 200, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "alice", Name: good}); me.Name != good {
			t.Errorf("%q became %q", good, me.Name)
		}
	}
}

// TestUserAdminAgainstOwner checks every route by which a user administrator could become, or act as, an owner.
func TestUserAdminAgainstOwner(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	eve := owner.add("eve", "user-admin")
	for _, attack := range []struct {
		method, path string
		body         any
	}{
		{"PUT", "users/eve/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}}},
		{"PUT", "users/admin/roles", sdk.UpdateRolesRequest{}},
		{"PUT", "users/admin/password", sdk.UpdateUserPasswordRequest{Password: "Another-good-one-7"}},
		{"PUT", "users/admin/status/suspend", nil},
		{"PUT", "users/admin/profile", sdk.UpdateUserProfileRequest{Username: "gone"}},
		{"DELETE", "users/admin", nil},
		{"POST", "users/admin/keys", nil},
		{"POST", "users/admin/keys/tokens", sdk.CreateTokenRequest{}},
		{"GET", "users/admin/keys/tokens", nil},
		{"GET", "users/admin/gitsshkey", nil},
		{"PUT", "users/admin/gitsshkey", nil},
	} {
		if status, body := eve.send(attack.method, attack.path, attack.body); status != 403 && status != 404 {
			t.Errorf("%s %s: %d %s", attack.method, attack.path, status, body)
		}
	}
	// Roles in the request that creates an account have no effect.
	eve.want(201, "POST", "users", map[string]any{"email": "mal@example.com", "username": "mal", "password": password, "roles": []string{"owner"}, "site_roles": []string{"owner"}})
	if mal := call[sdk.User](owner, 200, "GET", "users/mal", nil); len(mal.Roles) != 0 {
		t.Errorf("a new account has the roles %+v", mal.Roles)
	}
	if me := call[sdk.User](owner, 200, "GET", "users/me", nil); me.Username != "admin" || len(me.Roles) != 1 || me.Roles[0].Name != "owner" {
		t.Errorf("the owner: %+v", me)
	}
	a.login("admin@example.com")
}

// TestNobodySignsInAsOthers: an owner of the deployment gets neither a token nor a session of a user who signs in, in whatever way, because it opens
// the user's workspaces. Of programs' accounts, which do not sign in, it gets both.
func TestNobodySignsInAsOthers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	for _, way := range []string{"password", "oidc", "github", "none"} {
		user := owner.add("user-" + way)
		a.Exec(`UPDATE users SET login_type = $2 WHERE id = $1`, user.id, way)
		want := 403
		if way == "none" {
			want = 201
		}
		for _, req := range []sdk.CreateTokenRequest{{}, {Scopes: []string{"workspace:ssh"}}, {Scopes: []string{"user:read"}}} {
			owner.want(want, "POST", "users/"+user.id.String()+"/keys/tokens", req)
		}
		owner.want(want, "POST", "users/user-"+way+"/keys", nil)
		user.want(201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{})
		user.want(201, "POST", "users/user-"+way+"/keys", nil)
	}
	owner.want(201, "POST", "users/admin/keys", nil)
}
