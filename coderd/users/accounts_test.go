package users_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestAttacker checks that a member learns nothing about another user and changes nothing of theirs.
func TestAttacker(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, mallory := owner.add("alice"), owner.add("mallory")
	admin := owner.add("tad", "template-admin")
	token := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"})
	key := token.Key[:10]
	for _, attacker := range []person{mallory, admin} {
		for _, target := range []string{"alice", alice.id.String(), "admin"} {
			exists := func(method, path string, body any) {
				t.Helper()
				got := attacker.want(404, method, "users/"+target+path, body)
				other := attacker.want(404, method, "users/doesnotexist"+path, body)
				if !bytes.Equal(got, other) {
					t.Errorf("%s learns that %s exists: %s, not %s", attacker.name, target, got, other)
				}
			}
			exists("GET", "", nil)
			exists("GET", "/roles", nil)
			exists("GET", "/organizations", nil)
			exists("GET", "/keys/tokens", nil)
			exists("GET", "/keys/tokens/ci", nil)
			exists("GET", "/keys/"+key, nil)
			exists("POST", "/keys/tokens", sdk.CreateTokenRequest{})
			exists("POST", "/keys", nil)
			exists("DELETE", "/keys/"+key, nil)
			exists("GET", "/gitsshkey", nil)
			exists("PUT", "/gitsshkey", nil)
			exists("PUT", "/profile", sdk.UpdateUserProfileRequest{Username: "x"})
			exists("PUT", "/password", sdk.UpdateUserPasswordRequest{Password: "An0ther-Password"})
		}
		// Another user's key is not found among one's own.
		attacker.want(404, "GET", "users/me/keys/"+key, nil)
		attacker.want(404, "DELETE", "users/me/keys/"+key, nil)
		// What no member may do to any user.
		attacker.want(403, "POST", "users", sdk.CreateUserRequest{Email: "x@example.com", Username: "x", Password: password})
		attacker.want(403, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}})
		attacker.want(403, "PUT", "users/alice/status/suspend", nil)
		attacker.want(403, "DELETE", "users/alice", nil)
		list := call[sdk.UsersResponse](attacker, 200, "GET", "users?q=alice", nil)
		if list.Count != 0 {
			t.Errorf("%s lists %+v", attacker.name, list)
		}
		// The minimum about a member: the name, without the address.
		member := call[sdk.OrganizationMember](attacker, 200, "GET", "organizations/default/members/alice", nil)
		if member.Username != "alice" || member.Email != "" || len(member.GlobalRoles) != 0 {
			t.Errorf("%s reads the member %+v", attacker.name, member)
		}
		if tokens := call[[]sdk.APIKey](attacker, 200, "GET", "users/me/keys/tokens?include_all=true", nil); len(tokens) != 0 {
			t.Errorf("%s lists others' tokens: %+v", attacker.name, tokens)
		}
	}
	// And alice is unchanged.
	if me := call[sdk.User](alice, 200, "GET", "users/me", nil); me.Username != "alice" {
		t.Errorf("alice: %+v", me)
	}
	(person{a, "alice's token", alice.id, token.Key}).want(200, "GET", "users/me", nil)
	if all := call[[]sdk.APIKey](owner, 200, "GET", "users/me/keys/tokens?include_all=true", nil); len(all) != 1 || all[0].Username != "alice" {
		t.Errorf("the owner lists %+v", all)
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	other := person{a, "alice elsewhere", alice.id, a.login("alice@example.com")}
	for _, bad := range []string{"", "short", "password123", "aaaaaaaaaaaa", "alice", strings.Repeat("long", 40), "alice@example.com", password} {
		alice.want(400, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: bad})
	}
	const fresh = "Staple-Battery-7-Horse"
	alice.want(400, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: "wrong", Password: fresh})
	alice.want(204, "PUT", "users/me/password", sdk.UpdateUserPasswordRequest{OldPassword: password, Password: fresh})
	alice.want(200, "GET", "users/me", nil) // the session that changed it stays signed in
	other.want(401, "GET", "users/me", nil)
	a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: password})
	a.nobody().want(201, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: fresh})
	// An owner sets another user's password without knowing the old one. API tokens end if the request asks for it.
	token := call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{}).Key
	program := person{a, "alice's program", alice.id, token}
	owner.want(204, "PUT", "users/alice/password", sdk.UpdateUserPasswordRequest{Password: fresh + "!"})
	program.want(200, "GET", "users/me", nil)
	owner.want(204, "PUT", "users/alice/password", sdk.UpdateUserPasswordRequest{Password: password, EndTokens: true})
	program.want(401, "GET", "users/me", nil)
	a.login("alice@example.com")
	alice.want(401, "GET", "users/me", nil)
	// So can the operator.
	if err := a.Users.ResetPassword(t.Context(), "admin", fresh); err != nil {
		t.Error(err)
	}
	a.nobody().want(201, "POST", "users/login", sdk.LoginRequest{Email: "admin@example.com", Password: fresh})
	if _, err := a.Users.CreateOwner(t.Context(), sdk.CreateFirstUserRequest{Email: "op@example.com", Username: "op", Password: password}); err != nil {
		t.Error(err)
	}
}

func TestProfileAndList(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	owner.add("bob")
	if u := call[sdk.User](alice, 200, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "alice-b", Name: "Alice B"}); u.Username != "alice-b" || u.Name != "Alice B" {
		t.Errorf("profile: %+v", u)
	}
	alice.want(409, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "BOB"})
	alice.want(400, "PUT", "users/me/profile", sdk.UpdateUserProfileRequest{Username: "no good"})
	taken := call[sdk.Response](owner, 409, "POST", "users", sdk.CreateUserRequest{Email: "Bob@Example.com", Username: "bob2", Password: password})
	if len(taken.Validations) != 1 || taken.Validations[0].Field != "email" {
		t.Errorf("a taken address: %+v", taken)
	}
	for q, want := range map[string]string{
		"": "admin alice-b bob", "?q=alice": "alice-b", "?q=role:owner": "admin", "?q=status:active+name:bob": "bob", "?q=status:suspended": "", `?q=%22alice-b%22`: "alice-b", `?q=NAME:%22bob%22`: "bob", "?q=status:active+status:suspended": "admin alice-b bob",
		"?limit=1": "admin", "?limit=1&offset=2": "bob", "?offset=9": "",
	} {
		page := call[sdk.UsersResponse](owner, 200, "GET", "users"+q, nil)
		var names []string
		for _, u := range page.Users {
			names = append(names, u.Username)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("users%s: got %q, want %q", q, got, want)
		}
		if strings.Contains(q, "offset") && page.Count != 3 {
			t.Errorf("users%s: count %d, want 3", q, page.Count)
		}
	}
	owner.want(400, "GET", "users?q=color:blue", nil)
	owner.want(400, "GET", "users?q=status:", nil)
	owner.want(400, "GET", "users?q=role:owner+role:member", nil)
	owner.want(400, "GET", "users?limit=-1", nil)
	owner.want(200, "GET", "users/ALICE-B", nil)
	if roles := call[sdk.UserRoles](alice, 200, "GET", "users/me/roles", nil); len(roles.Roles) != 0 || len(roles.OrganizationRoles) != 1 {
		t.Errorf("roles: %+v", roles)
	}
}

func TestSSHKey(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	alice := a.first().add("alice")
	first := call[sdk.GitSSHKey](alice, 200, "GET", "users/me/gitsshkey", nil)
	if again := call[sdk.GitSSHKey](alice, 200, "GET", "users/me/gitsshkey", nil); again.PublicKey != first.PublicKey {
		t.Error("the key changed without a rotation")
	}
	second := call[sdk.GitSSHKey](alice, 200, "PUT", "users/me/gitsshkey", nil)
	if second.PublicKey == first.PublicKey || !strings.HasPrefix(second.PublicKey, "ssh-ed25519 ") {
		t.Errorf("replaced %q by %q", first.PublicKey, second.PublicKey)
	}
	var stored string
	if err := a.DB.Pool.QueryRow(t.Context(), "SELECT k::text FROM git_ssh_keys k WHERE user_id = $1", alice.id).Scan(&stored); err != nil || strings.Contains(stored, "PRIVATE KEY") {
		t.Errorf("the private key is stored in clear: %v", err)
	}
	pair, err := a.Users.SSHKey(t.Context(), a.DB.Queries, alice.id)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey([]byte(pair.Private.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey()))); got != second.PublicKey || got != pair.Public {
		t.Errorf("the private key is not the public one's: %q", got)
	}
	a.Exec("DELETE FROM git_ssh_keys") // an account that was created without a key
	if _, err := a.Users.SSHKey(t.Context(), a.DB.Queries, alice.id); err != nil {
		t.Error(err)
	}
}

// TestUserAdmin checks that user admins administer members, and that owners' accounts are out of their reach.
func TestUserAdmin(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	eve, carl := owner.add("eve"), owner.add("carl")
	owner.add("bob")
	owner.add("dora")
	owner.want(200, "PUT", "users/eve/roles", sdk.UpdateRolesRequest{Roles: []string{"user-admin"}})
	eve.want(200, "PUT", "users/bob/status/suspend", nil)
	eve.want(200, "PUT", "users/bob/status/activate", nil)
	eve.want(200, "PUT", "users/bob/roles", sdk.UpdateRolesRequest{Roles: []string{"user-admin"}})
	owner.want(200, "PUT", "users/dora/roles", sdk.UpdateRolesRequest{Roles: []string{"template-admin"}})
	eve.want(200, "GET", "users/"+owner.name, nil)
	for _, attack := range []struct {
		method, path string
		body         any
	}{
		{"PUT", "users/eve/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}}},
		{"PUT", "users/bob/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}}},
		{"PUT", "users/bob/roles", sdk.UpdateRolesRequest{Roles: []string{"auditor"}}},
		{"PUT", "users/dora/password", sdk.UpdateUserPasswordRequest{Password: "Another-good-one-7"}},
		{"PUT", "users/dora/roles", sdk.UpdateRolesRequest{}},
		{"PUT", "users/" + owner.name + "/roles", sdk.UpdateRolesRequest{}},
		{"PUT", "users/" + owner.name + "/status/suspend", nil},
		{"PUT", "users/" + owner.name + "/password", sdk.UpdateUserPasswordRequest{Password: "Another-good-one-7"}},
		{"DELETE", "users/" + owner.name, nil},
	} {
		eve.want(403, attack.method, attack.path, attack.body)
	}
	carl.want(403, "PUT", "users/carl/roles", sdk.UpdateRolesRequest{Roles: []string{"owner"}})
}

// TestOrderOfUsers checks each order of the list, with ties by name and those who were never seen last, over pages.
func TestOrderOfUsers(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	for i, name := range []string{"zoe", "Adam", "mia"} {
		owner.add(name)
		a.Exec(`UPDATE users SET created_at = '2026-01-01'::timestamptz + make_interval(days => $1), last_seen_at = NULL WHERE username = $2`, 3-i, name)
	}
	a.Exec(`UPDATE users SET last_seen_at = '2026-02-01' WHERE username = 'mia'`)
	list := func(query string) string {
		t.Helper()
		var names []string
		for _, u := range call[sdk.UsersResponse](owner, 200, "GET", "users?q=status:active,dormant&"+query, nil).Users {
			if u.Username != owner.name {
				names = append(names, u.Username)
			}
		}
		return strings.Join(names, " ")
	}
	for query, want := range map[string]string{
		"": "Adam mia zoe", "sort=username": "Adam mia zoe", "sort=created": "zoe Adam mia", "sort=seen": "mia Adam zoe", "sort=seen&limit=2&offset=2": "Adam zoe",
	} {
		if got := list(query); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	owner.want(400, "GET", "users?sort=email", nil)
	// A short list of those whom a search finds has the one with that name.
	owner.add("a-mia")
	for query, want := range map[string]string{"name:MIA&limit=1": "mia", "name:mia": "mia a-mia", "name:mia&sort=created": "a-mia mia"} {
		page := call[sdk.UsersResponse](owner, 200, "GET", "users?q="+query, nil)
		var names []string
		for _, u := range page.Users {
			names = append(names, u.Username)
		}
		if got := strings.Join(names, " "); got != want || page.Count != 2 {
			t.Errorf("%s: got %q of %d, want %q of 2", query, got, page.Count, want)
		}
	}
}
