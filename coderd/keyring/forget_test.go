package keyring_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// signIn signs an owner in with an identity provider, whose login is encrypted with a keyring.
func (b *builds) signIn(o owner, r *keyring.Ring) {
	b.exec("UPDATE users SET login_type = 'oidc' WHERE id = $1", o.user)
	b.exec("INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable) VALUES ($1, 'sign-in:oidc', $2, true)", o.user,
		r.SealSecret(keyring.LoginPlace(o.user, "sign-in:oidc"), []byte("x")))
	b.exec("INSERT INTO api_keys (id, user_id, secret_hash, kind, lifetime_seconds, expires_at) "+
		"VALUES ($1::text, $2, sha256($1::text::bytea), 'session', 3600, now() + interval '1 hour')", o.name[:10], o.user)
}

// signedIn reports whether the owner's session is valid.
func (b *builds) signedIn(o owner) (valid bool) {
	b.t.Helper()
	if err := b.db.Pool.QueryRow(b.t.Context(), "SELECT expires_at > now() FROM api_keys WHERE user_id = $1", o.user).Scan(&valid); err != nil {
		b.t.Fatal(err)
	}
	return valid
}

// TestForget checks that an operator can continue without a key that is lost for good: what can be made again is deleted, states and users'
// secrets stay as they are and say so, and nothing under another key changes.
func TestForget(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	all := allKinds(t, b)
	old, fresh := ring(t, 1), ring(t, 2)
	ann, bob := b.fill(old), b.fill(fresh)
	b.signIn(ann, old)
	b.signIn(bob, fresh)
	lost, kept := b.stored(ann), b.stored(bob)
	id := old.IDs()[0]
	if err := fresh.Check(t.Context(), b.db); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), id+" (external logins: 2, user secrets: 1, webhooks: 1, SSH keys: 1") {
		t.Fatalf("before: %v", err)
	}
	for name, wrong := range map[string]struct {
		ring *keyring.Ring
		ids  []string
	}{
		"no id":                  {fresh, []string{"x"}},
		"an id that is longer":   {fresh, []string{id + "00"}},
		"a key that is unused":   {fresh, []string{strings.Repeat("0", 16)}},
		"a key that is there":    {old, []string{id}},
		"one of two that is":     {fresh, []string{id, fresh.IDs()[0]}},
		"one of two without use": {nil, []string{id, strings.Repeat("0", 16)}},
	} {
		if _, err := keyring.Forget(t.Context(), b.db, wrong.ring, wrong.ids); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if diff := cmp.Diff(lost, b.stored(ann)); diff != "" {
		t.Errorf("a refused command changed values: %s", diff)
	}
	got, err := keyring.Forget(t.Context(), b.db, fresh, []string{id})
	if err != nil {
		t.Fatal(err)
	}
	want := keyring.Loss{
		Values:  map[keyring.Kind]int64{keyring.ExternalLogins: 2, keyring.UserSecrets: 1, keyring.Webhooks: 1, keyring.SSHKeys: 1, keyring.ACMEData: 1, keyring.StatePieces: 1, keyring.WorkspaceStates: 1},
		SignIns: []string{ann.name}, Logins: []keyring.Property{{Owner: ann.name, Name: "forge"}}, Secrets: []keyring.Property{{Owner: ann.name, Name: "npm"}},
		SSHKeys: []string{ann.name}, Workspaces: []keyring.Property{{Owner: ann.name, Name: got.Workspaces[0].Name}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Errorf("after: %v", err)
	}
	if ids, err := keyring.KeysInUse(t.Context(), b.db.Queries); err != nil || !slices.Equal(ids, fresh.IDs()) {
		t.Errorf("keys in use: %v, %v", ids, err)
	}
	rotate(t, b, fresh)
	if diff := cmp.Diff(map[keyring.Kind][]byte{keyring.UserSecrets: lost[keyring.UserSecrets], keyring.Webhooks: lost[keyring.Webhooks], keyring.WorkspaceStates: lost[keyring.WorkspaceStates]}, b.stored(ann)); diff != "" {
		t.Errorf("what is left of the lost key's values: %s", diff)
	}
	if _, err := fresh.Open(ann.workspace, lost[keyring.WorkspaceStates]); fault.CodeOf(err) != fault.Conflict || !strings.Contains(fault.As(err).Detail, "coder state push") {
		t.Errorf("the lost state: %v", err)
	}
	if diff := cmp.Diff(kept, b.stored(bob)); diff != "" {
		t.Errorf("values under the other key were changed: %s", diff)
	}
	if b.signedIn(ann) || !b.signedIn(bob) {
		t.Error("only the session whose sign-in was lost must end")
	}
	// The key was found: what stayed is readable, and is encrypted with the first key again.
	encrypted, _ := rotate(t, b, ring(t, 2, 1))
	if encrypted[keyring.WorkspaceStates] != 1 || encrypted[keyring.UserSecrets] != 1 {
		t.Errorf("with the key found: %v", encrypted)
	}
	if got := b.opens(fresh, ann); !slices.Equal(got, []keyring.Kind{keyring.WorkspaceStates, keyring.UserSecrets, keyring.Webhooks}) {
		t.Errorf("with the key found: %v", got)
	}
	if got := b.opens(fresh, bob); !slices.Equal(got, all) {
		t.Errorf("under the other key: got %v, want all", got)
	}
}

// TestForgetHostSeed checks that the SSH host seed and the keys of ID tokens keep no server from starting, and go with their own key only.
func TestForgetHostSeed(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	old, fresh := ring(t, 1), ring(t, 2)
	b.fillSeed(old)
	b.fillIdentity(old)
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Errorf("without the seed's key: %v", err)
	}
	b.fillSeed(fresh)
	b.fillIdentity(fresh)
	b.fill(old)
	loss, err := keyring.Forget(t.Context(), b.db, fresh, old.IDs())
	if err != nil || loss.Values[keyring.SSHHostKeys] != 0 {
		t.Errorf("the other key: lost %v, %v", loss.Values, err)
	}
	if !b.opensSeed(fresh) || !b.opensIdentity(fresh) {
		t.Error("the seed or the keys of ID tokens went with another key")
	}
	loss, err = keyring.Forget(t.Context(), b.db, old, fresh.IDs())
	if diff := cmp.Diff(keyring.Loss{Values: map[keyring.Kind]int64{keyring.SSHHostKeys: 1, keyring.IdentityKeys: 1}}, loss); err != nil || diff != "" {
		t.Errorf("the seed's key: %s, %v", diff, err)
	}
	if b.opensSeed(fresh) || b.opensIdentity(fresh) {
		t.Error("the seed or the keys of ID tokens are still there")
	}
}
