package users_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

func TestSuspendedAndDeleted(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	token := person{a, "alice's token", alice.id, call[sdk.CreateTokenResponse](alice, 201, "POST", "users/me/keys/tokens", sdk.CreateTokenRequest{TokenName: "ci"}).Key}

	if u := call[sdk.User](owner, 200, "PUT", "users/alice/status/suspend", nil); u.Status != sdk.UserSuspended {
		t.Errorf("suspended: %+v", u)
	}
	if !a.wasRevoked(alice.id) {
		t.Error("the suspension was not announced")
	}
	alice.want(401, "GET", "users/me", nil)
	token.want(401, "GET", "users/me", nil)
	a.nobody().want(401, "POST", "users/login", sdk.LoginRequest{Email: "alice@example.com", Password: password})
	if err := a.Users.Active(t.Context(), alice.id); err == nil {
		t.Error("a suspended user is active")
	}
	owner.want(400, "POST", "users/alice/keys", nil)

	owner.want(200, "PUT", "users/alice/status/activate", nil)
	alice.want(401, "GET", "users/me", nil) // the session ended for good
	token.want(200, "GET", "users/me", nil)
	if err := a.Users.Active(t.Context(), alice.id); err != nil {
		t.Errorf("active again: %v", err)
	}

	owner.want(204, "DELETE", "users/alice", nil)
	if !a.wasRevoked(alice.id) {
		t.Error("the deletion was not announced")
	}
	token.want(401, "GET", "users/me", nil)
	owner.want(404, "GET", "users/alice", nil)
	owner.add("alice") // the name is free again

	// The last owner cannot be deleted, and users cannot delete themselves.
	owner.want(400, "DELETE", "users/me", nil)
	owner.want(400, "PUT", "users/me/status/suspend", nil)
	owner.want(409, "PUT", "users/me/roles", sdk.UpdateRolesRequest{})
	second := owner.add("second", "owner")
	owner.want(200, "PUT", "users/me/roles", sdk.UpdateRolesRequest{Roles: []string{"member"}})
	if !a.wasRevoked(owner.id) {
		t.Error("nobody was told that an owner is none any more")
	}
	owner.want(403, "POST", "users", sdk.CreateUserRequest{})
	second.want(400, "PUT", "users/admin/roles", sdk.UpdateRolesRequest{Roles: []string{"king"}})
	second.want(204, "DELETE", "users/admin", nil)
}

// workspace creates a workspace with a pending build.
func (a *api) workspace(owner string) uuid.UUID {
	a.t.Helper()
	return a.Workspace(owner, "w", a.Template("t", nil).ID).ID
}

func TestUserWithWorkspacesStays(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	a.workspace("alice")
	if text := owner.want(409, "DELETE", "users/alice", nil); !strings.Contains(string(text), "still owns") {
		t.Errorf("answer: %s", text)
	}
	a.Exec("UPDATE workspaces SET deleted_at = now()")
	a.Exec(`INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable) VALUES ($1, 'forge', 'sealed', false)`, alice.id)
	owner.want(204, "DELETE", "users/alice", nil)
	if links, err := a.DB.ListExternalAuthLinks(t.Context(), alice.id); err != nil || len(links) != 0 {
		t.Errorf("what is left of her logins: %v, %v", links, err)
	}
	var keys int
	if err := a.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM git_ssh_keys WHERE user_id = $1", alice.id).Scan(&keys); err != nil || keys != 0 {
		t.Errorf("what is left of her key for Git: %d, %v", keys, err)
	}
}

// TestUserDeletedWhileWorkspaceIsMade checks that a workspace counts if it is created while its owner is being deleted, even
// though its transaction has not ended.
func TestUserDeletedWhileWorkspaceIsMade(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice := owner.add("alice")
	id := a.workspace("alice")
	a.Exec("UPDATE workspaces SET deleted_at = now()")
	tx, err := a.DB.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	if held, err := dbsqlc.New(tx).HoldUser(t.Context(), alice.id); err != nil || held != alice.id {
		t.Fatalf("hold: %s, %v", held, err)
	}
	if _, err := tx.Exec(t.Context(), "UPDATE workspaces SET deleted_at = NULL WHERE id = $1", id); err != nil {
		t.Fatal(err)
	}
	answer := make(chan int, 1)
	go func() {
		status, _ := owner.send("DELETE", "users/alice", nil)
		answer <- status
	}()
	a.awaitBlocked(t)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := <-answer; got != 409 {
		t.Errorf("deletion: got %d, want 409", got)
	}
	alice.want(200, "GET", "users/me", nil)
}

// awaitBlocked waits until a transaction of this database waits for another's lock.
func (a *api) awaitBlocked(t *testing.T) {
	t.Helper()
	testwait.Until(t, "a transaction that waits", a.Blocked)
}
