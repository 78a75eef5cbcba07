package users_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestConnectionTypes(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	alice, bob := owner.add("alice"), owner.add("bob")
	connect := func(p person, kind string) {
		t.Helper()
		a.Exec(`INSERT INTO connection_logs (id, connect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, user_id)
			VALUES ($1, now(), $1, $2, $1, 'dev', $1, 'main', $3, $2)`, uuid.New(), p.id, kind)
	}
	want := func(p person, path string, want ...string) {
		t.Helper()
		if got := call[sdk.ConnectionTypes](p, 200, "GET", path, nil); !slices.Equal(got.Types, want) {
			t.Errorf("types for %s: %v, want %v", p.name, got.Types, want)
		}
	}
	want(alice, "users/me/connection-types")
	connect(alice, "vscode")
	connect(alice, "ssh")
	connect(alice, "ssh")
	connect(bob, "jetbrains")
	want(alice, "users/me/connection-types", "ssh", "vscode")
	want(owner, "users/alice/connection-types", "ssh", "vscode")
	bob.want(404, "GET", "users/alice/connection-types", nil)
}
