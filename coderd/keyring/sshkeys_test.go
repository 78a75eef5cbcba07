package keyring_test

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

const pem = "-----BEGIN OPENSSH PRIVATE KEY-----"

// dump returns what a copy of the database reveals of SSH keys.
func (b *builds) dump() string {
	b.t.Helper()
	var text string
	if err := b.db.Pool.QueryRow(b.t.Context(), `SELECT string_agg(k::text, ' ') FROM git_ssh_keys k`).Scan(&text); err != nil {
		b.t.Fatal(err)
	}
	return text
}

// TestSSHKeysAtRest checks that the first start encrypts private SSH keys of an older release. They follow a new key, and
// can be opened only in their own row.
func TestSSHKeysAtRest(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	workspace := uuid.New()
	b.add(workspace, []byte("{}"))
	var user uuid.UUID
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM users").Scan(&user); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO git_ssh_keys (user_id, private_key, public_key) VALUES ($1, $2, 'ssh-ed25519 AAAA')", user, pem+" git")
	read := func(r *keyring.Ring) (string, error) {
		t.Helper()
		g, err := b.db.GetGitSSHKey(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return r.OpenSSHKey(keyring.GitKeyPlace(user), g.PrivateKey, g.Sealed)
	}
	for _, r := range []*keyring.Ring{ring(t, 1), ring(t, 1), ring(t, 2, 1), ring(t, 2)} {
		if git, err := read(r); err != nil || git != pem+" git" {
			t.Fatalf("before: %q, %v", git, err)
		}
		rotate(t, b, r)
		if git, err := read(r); err != nil || git != pem+" git" {
			t.Fatalf("after: %q, %v", git, err)
		}
		if strings.Contains(b.dump(), "PRIVATE KEY") {
			t.Fatal("a copy of the database shows a private key")
		}
	}
	if _, err := read(ring(t, 1)); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("with the old key alone: %v, want a conflict", err)
	}
	if err := ring(t, 1).Check(t.Context(), b.db); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "SSH keys: 1") {
		t.Errorf("check with the old key alone: %v", err)
	}
	// After a move into another user's row, the key cannot be opened.
	g, err := b.db.GetGitSSHKey(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring(t, 2).OpenSSHKey(keyring.GitKeyPlace(uuid.New()), "", g.Sealed); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another user's: %v, want a conflict", err)
	}
}
