package states_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/internal/fault"
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
	b, log := newBuilds(t), slog.New(slog.DiscardHandler)
	workspace := uuid.New()
	b.add(workspace, []byte("{}"))
	var user uuid.UUID
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT id FROM users").Scan(&user); err != nil {
		t.Fatal(err)
	}
	b.exec("INSERT INTO git_ssh_keys (user_id, private_key, public_key) VALUES ($1, $2, 'ssh-ed25519 AAAA')", user, pem+" git")
	read := func(r *states.Keyring) (string, error) {
		t.Helper()
		g, err := b.db.GetGitSSHKey(t.Context(), user)
		if err != nil {
			t.Fatal(err)
		}
		return r.OpenSSHKey(states.GitKeyPlace(user), g.PrivateKey, g.Sealed)
	}
	for _, r := range []*states.Keyring{ring(t, 1), ring(t, 1), ring(t, 2, 1), ring(t, 2)} {
		if git, err := read(r); err != nil || git != pem+" git" {
			t.Fatalf("before: %q, %v", git, err)
		}
		if err := r.ReencryptSSHKeys(t.Context(), b.db, log); err != nil {
			t.Fatal(err)
		}
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
	if err := ring(t, 1).Check(t.Context(), b.db); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "(1 SSH keys)") {
		t.Errorf("check with the old key alone: %v", err)
	}
	// After a move into another user's row, the key cannot be opened.
	g, err := b.db.GetGitSSHKey(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ring(t, 2).OpenSSHKey(states.GitKeyPlace(uuid.New()), "", g.Sealed); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("another user's: %v, want a conflict", err)
	}
}

// TestForget checks that an operator can continue without a key that is lost for good: the states under it stay as they are
// and report that, SSH keys are created again, and data under other keys is untouched.
func TestForget(t *testing.T) {
	t.Parallel()
	b, log := newBuilds(t), slog.New(slog.DiscardHandler)
	old, fresh := ring(t, 1), ring(t, 2)
	lostIn, keptIn := uuid.New(), uuid.New()
	lost, kept := b.add(lostIn, old.Seal(lostIn, []byte("lost"))), b.add(keptIn, fresh.Seal(keptIn, []byte("kept")))
	stored := b.state(lost)
	b.exec("INSERT INTO git_ssh_keys (user_id, private_key, public_key) SELECT id, 'x', 'y' FROM users")
	if err := old.ReencryptSSHKeys(t.Context(), b.db, log); err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%x", old.Header()[5:])
	if err := fresh.Check(t.Context(), b.db); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), id+" (1 states, 2 SSH keys)") {
		t.Fatalf("before: %v", err)
	}
	for _, wrong := range []string{"", "x", id + "00", strings.Repeat("0", 16)} {
		if _, err := states.Forget(t.Context(), b.db, wrong); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("forget %q: %v, want invalid", wrong, err)
		}
	}
	got, err := states.Forget(t.Context(), b.db, id)
	if err != nil || got != (states.Lost{States: 1, SSHKeys: 2}) {
		t.Fatalf("forget: %+v, %v", got, err)
	}
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Fatalf("after: %v", err)
	}
	if err := fresh.Reencrypt(t.Context(), b.db, log); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.state(lost), stored) {
		t.Error("the lost state was changed: it cannot be read again when the key is found")
	}
	if _, err := fresh.Open(lostIn, b.state(lost)); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error()+fault.As(err).Detail, "coder state push") {
		t.Errorf("the lost state: %v", err)
	}
	if got, err := fresh.Open(keptIn, b.state(kept)); err != nil || string(got) != "kept" {
		t.Errorf("the other state: %q, %v", got, err)
	}
	var keys int
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM git_ssh_keys").Scan(&keys); err != nil || keys != 0 {
		t.Errorf("%d unreadable keys for git are left, %v", keys, err)
	}
	// The key was found: everything that was not created again is readable.
	if got, err := ring(t, 2, 1).Open(lostIn, b.state(lost)); err != nil || string(got) != "lost" {
		t.Errorf("with the key found: %q, %v", got, err)
	}
}

// TestForgetUserSecrets checks that a server refuses to start without the key of users' secrets, and starts once it was forgotten: the
// secrets stay, for the day when the key is found.
func TestForgetUserSecrets(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	old, fresh := ring(t, 1), ring(t, 2)
	b.add(uuid.New(), []byte{})
	b.exec("INSERT INTO user_secrets (id, user_id, name, sealed, size) SELECT gen_random_uuid(), id, 'key', $1, 1 FROM users", old.SealSecret("there", []byte("x")))
	id := fmt.Sprintf("%x", old.Header()[5:])
	if err := fresh.Check(t.Context(), b.db); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), id+" (1 user secrets)") {
		t.Fatalf("before: %v", err)
	}
	if got, err := states.Forget(t.Context(), b.db, id); err != nil || got != (states.Lost{Secrets: 1}) {
		t.Fatalf("forget: %+v, %v", got, err)
	}
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Errorf("after: %v", err)
	}
	var left int
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*) FROM user_secrets").Scan(&left); err != nil || left != 1 {
		t.Errorf("secrets left: %d, %v", left, err)
	}
}
