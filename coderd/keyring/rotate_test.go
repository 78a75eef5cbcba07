package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// rotate brings everything under a ring's first key, and returns the numbers of encrypted and unreadable values by kind.
func rotate(t *testing.T, b *builds, r *keyring.Ring) (encrypted, unreadable map[keyring.Kind]int64) {
	t.Helper()
	report, err := r.Rotate(t.Context(), b.db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	encrypted, unreadable = map[keyring.Kind]int64{}, map[keyring.Kind]int64{}
	for _, k := range report {
		encrypted[k.Kind], unreadable[k.Kind] = k.Resealed, k.Unreadable
	}
	return encrypted, unreadable
}

// owner is a user with a value of every kind.
type owner struct {
	user, workspace, secret, job uuid.UUID
	name                         string
}

func (o owner) acme() string { return o.name + ".example.com" }

// fill stores values of every kind of a new user, encrypted with a ring. Each holds the name of its kind.
func (b *builds) fill(r *keyring.Ring) owner {
	b.t.Helper()
	o := owner{workspace: uuid.New(), secret: uuid.New()}
	build := b.add(o.workspace, r.Seal(o.workspace, []byte(keyring.WorkspaceStates)))
	if err := b.db.Pool.QueryRow(b.t.Context(), `SELECT u.id, u.username, b.job_id FROM workspace_builds b JOIN workspaces w ON w.id = b.workspace_id
		JOIN users u ON u.id = w.owner_id WHERE b.id = $1`, build).Scan(&o.user, &o.name, &o.job); err != nil {
		b.t.Fatal(err)
	}
	b.exec("INSERT INTO provisioner_job_state_pieces (job_id, first_byte, size, data) VALUES ($1, 0, 1, $2)", o.job, r.Seal(o.workspace, []byte(keyring.StatePieces)))
	b.exec("INSERT INTO external_auth_links (user_id, provider_id, tokens, refreshable) VALUES ($1, 'forge', $2, true)", o.user,
		r.SealSecret(keyring.LoginPlace(o.user, "forge"), []byte(keyring.ExternalLogins)))
	b.exec("INSERT INTO user_secrets (id, user_id, name, sealed, size) VALUES ($1, $2, 'npm', $3, 1)", o.secret, o.user,
		r.SealSecret(keyring.SecretPlace(o.user, o.secret), []byte(keyring.UserSecrets)))
	b.exec("INSERT INTO webhooks (id, name, origin, sealed, events, format) VALUES ($1, $2, '', $3, '{*}', 'standard')", o.secret, o.name,
		r.SealSecret(keyring.WebhookPlace(o.secret), []byte(keyring.Webhooks)))
	b.exec("INSERT INTO git_ssh_keys (user_id, private_key, sealed, public_key) VALUES ($1, '', $2, 'y')", o.user, r.SealSecret(keyring.GitKeyPlace(o.user), []byte(keyring.SSHKeys)))
	b.exec("INSERT INTO settings (key, value) VALUES ('acme:' || $1::text, $2)", o.acme(), r.SealSecret(keyring.ACMEPlace(o.acme()), []byte(keyring.ACMEData)))
	return o
}

// fillIdentity stores the keys that sign ID tokens, of which there are some in a deployment, encrypted with a ring.
func (b *builds) fillIdentity(r *keyring.Ring) {
	b.t.Helper()
	b.exec("INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", keyring.IdentitySetting,
		r.SealSecret(keyring.IdentityPlace(), []byte(keyring.IdentityKeys)))
}

// opensIdentity reports whether a ring opens the keys that sign ID tokens.
func (b *builds) opensIdentity(r *keyring.Ring) bool {
	b.t.Helper()
	stored, err := b.db.GetSetting(b.t.Context(), keyring.IdentitySetting)
	if database.IsNotFound(err) {
		return false
	}
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := r.OpenSecret(keyring.IdentityPlace(), stored)
	return err == nil && string(got) == string(keyring.IdentityKeys)
}

// fillSeed stores the SSH host seed, of which there is one in a deployment, encrypted with a ring.
func (b *builds) fillSeed(r *keyring.Ring) {
	b.t.Helper()
	b.exec("INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", string(keyring.HostSeed),
		r.SealSecret(keyring.HostSeed.Place(), []byte(keyring.SSHHostKeys)))
}

// opensSeed reports whether a ring opens the SSH host seed.
func (b *builds) opensSeed(r *keyring.Ring) bool {
	b.t.Helper()
	stored, err := b.db.GetSetting(b.t.Context(), string(keyring.HostSeed))
	if database.IsNotFound(err) {
		return false
	}
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := r.OpenSecret(keyring.HostSeed.Place(), stored)
	return err == nil && string(got) == string(keyring.SSHHostKeys)
}

// every has the query of each kind's value of an owner.
var every = map[keyring.Kind]struct {
	sql  string
	arg  func(owner) any
	open func(*keyring.Ring, owner, []byte) ([]byte, error)
}{
	keyring.WorkspaceStates: {"SELECT state FROM workspace_builds WHERE workspace_id = $1", func(o owner) any { return o.workspace },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) { return r.Open(o.workspace, stored) }},
	keyring.StatePieces: {"SELECT data FROM provisioner_job_state_pieces WHERE job_id = $1", func(o owner) any { return o.job },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) { return r.Open(o.workspace, stored) }},
	keyring.ExternalLogins: {"SELECT tokens FROM external_auth_links WHERE user_id = $1 AND provider_id = 'forge'", func(o owner) any { return o.user },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) {
			return r.OpenSecret(keyring.LoginPlace(o.user, "forge"), stored)
		}},
	keyring.UserSecrets: {"SELECT sealed FROM user_secrets WHERE user_id = $1", func(o owner) any { return o.user },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) {
			return r.OpenSecret(keyring.SecretPlace(o.user, o.secret), stored)
		}},
	keyring.Webhooks: {"SELECT sealed FROM webhooks WHERE id = $1", func(o owner) any { return o.secret },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) {
			return r.OpenSecret(keyring.WebhookPlace(o.secret), stored)
		}},
	keyring.SSHKeys: {"SELECT sealed FROM git_ssh_keys WHERE user_id = $1", func(o owner) any { return o.user },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) {
			return r.OpenSecret(keyring.GitKeyPlace(o.user), stored)
		}},
	keyring.ACMEData: {"SELECT value FROM settings WHERE key = 'acme:' || $1::text", func(o owner) any { return o.acme() },
		func(r *keyring.Ring, o owner, stored []byte) ([]byte, error) {
			return r.OpenSecret(keyring.ACMEPlace(o.acme()), stored)
		}},
}

// stored returns the values of an owner by kind, without those that are not there.
func (b *builds) stored(o owner) map[keyring.Kind][]byte {
	b.t.Helper()
	out := map[keyring.Kind][]byte{}
	for kind, k := range every {
		rows, err := b.db.Pool.Query(b.t.Context(), k.sql, k.arg(o))
		if err != nil {
			b.t.Fatal(err)
		}
		for rows.Next() {
			var value []byte
			if err := rows.Scan(&value); err != nil {
				b.t.Fatal(err)
			}
			out[kind] = value
		}
		if err := rows.Err(); err != nil {
			b.t.Fatal(err)
		}
	}
	return out
}

// opens returns the kinds of an owner's values that a ring opens.
func (b *builds) opens(r *keyring.Ring, o owner) []keyring.Kind {
	b.t.Helper()
	var kinds []keyring.Kind
	for kind, value := range b.stored(o) {
		got, err := every[kind].open(r, o, value)
		switch {
		case err == nil && string(got) == string(kind):
			kinds = append(kinds, kind)
		case err == nil:
			b.t.Errorf("%s: got %q", kind, got)
		case fault.CodeOf(err) != fault.Conflict && !errors.Is(err, keyring.ErrUnreadable):
			b.t.Errorf("%s: %v", kind, err)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// allKinds are those that Rotate reports, without those that users do not have.
func allKinds(t *testing.T, b *builds) (kinds []keyring.Kind) {
	t.Helper()
	encrypted, _ := rotate(t, b, ring(t, 9))
	delete(encrypted, keyring.SSHHostKeys)
	delete(encrypted, keyring.IdentityKeys)
	for kind := range encrypted {
		if _, ok := every[kind]; !ok {
			t.Errorf("the test does not know the kind %s", kind)
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// usages returns the counts by key as text.
func (b *builds) usages() map[string]string {
	b.t.Helper()
	all, err := keyring.Usages(b.t.Context(), b.db.Queries)
	if err != nil {
		b.t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range all {
		out[u.Key] = u.String()
	}
	return out
}

const oneOfEach = "external logins: 1, user secrets: 1, webhooks: 1, SSH keys: 1, SSH host keys: 1, identity keys: 1, ACME data: 1, pieces of states: 1, states: 1"

// TestEveryKindRotates checks that values of every kind follow a new key, are counted under the right one, and that the audit log says so.
func TestEveryKindRotates(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	all := allKinds(t, b)
	old, both, fresh := ring(t, 1), ring(t, 2, 1), ring(t, 2)
	o := b.fill(old)
	b.fillSeed(old)
	b.fillIdentity(old)
	if diff := cmp.Diff(map[string]string{old.IDs()[0]: oneOfEach}, b.usages()); diff != "" {
		t.Error(diff)
	}
	err := fresh.Check(t.Context(), b.db)
	if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "external logins: 1") || strings.Contains(err.Error(), "ACME") || strings.Contains(err.Error(), "host") || strings.Contains(err.Error(), "identity") ||
		!strings.Contains(fault.As(err).Detail, "coder server keys forget "+old.IDs()[0]) {
		t.Errorf("without the key: %v", err)
	}
	ctx := audit.OnHost(t.Context())
	report, err := both.Rotate(ctx, b.db, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range report {
		if k.Resealed != 1 || k.Unreadable != 0 {
			t.Errorf("got %+v, want 1 encrypted value", k)
		}
	}
	if diff := cmp.Diff(map[string]string{fresh.IDs()[0]: oneOfEach}, b.usages()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(all, b.opens(fresh, o)); diff != "" {
		t.Errorf("with the new key alone: %s", diff)
	}
	if !b.opensSeed(fresh) || !b.opensIdentity(fresh) {
		t.Error("the new key alone does not open the SSH host seed and the keys of ID tokens")
	}
	if err := fresh.Check(t.Context(), b.db); err != nil {
		t.Error(err)
	}
	if ids, err := keyring.KeysInUse(t.Context(), b.db.Queries); err != nil || !slices.Equal(ids, fresh.IDs()) {
		t.Errorf("keys in use: %v, %v", ids, err)
	}
	rotate(t, b, both) // changes nothing
	var rows int
	var actor, kind, target string
	if err := b.db.Pool.QueryRow(t.Context(), "SELECT count(*), max(actor), max(resource_type), max(resource_target) FROM audit_logs").Scan(&rows, &actor, &kind, &target); err != nil {
		t.Fatal(err)
	}
	if rows != 1 || actor != audit.ByOperator || kind != string(audit.EncryptionKey) || target != fresh.IDs()[0] {
		t.Errorf("got %d rows: %s %s %s", rows, actor, kind, target)
	}
}

// TestRotationKeepsPlaces: an attacker exchanges the values of two users, before and after a rotation. No rotation makes them readable at the
// other's place, nor does it touch them.
func TestRotationKeepsPlaces(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	all := allKinds(t, b)
	one, two := b.fill(ring(t, 1)), b.fill(ring(t, 1))
	exchange := func() {
		b.exec("UPDATE workspace_builds a SET state = b.state FROM workspace_builds b WHERE a.id <> b.id")
		b.exec("UPDATE provisioner_job_state_pieces a SET data = b.data FROM provisioner_job_state_pieces b WHERE a.job_id <> b.job_id")
		b.exec("UPDATE external_auth_links a SET tokens = b.tokens FROM external_auth_links b WHERE a.user_id <> b.user_id")
		b.exec("UPDATE user_secrets a SET sealed = b.sealed FROM user_secrets b WHERE a.id <> b.id")
		b.exec("UPDATE webhooks a SET sealed = b.sealed FROM webhooks b WHERE a.id <> b.id")
		b.exec("UPDATE git_ssh_keys a SET sealed = b.sealed FROM git_ssh_keys b WHERE a.user_id <> b.user_id")
		b.exec("UPDATE settings a SET value = b.value FROM settings b WHERE a.key <> b.key AND starts_with(a.key, 'acme:') AND starts_with(b.key, 'acme:')")
	}
	exchange()
	before := b.stored(one)
	encrypted, unreadable := rotate(t, b, ring(t, 2, 1))
	for _, kind := range all {
		if encrypted[kind] != 0 || unreadable[kind] != 2 {
			t.Errorf("%s: %d encrypted, %d unreadable; want 0, 2", kind, encrypted[kind], unreadable[kind])
		}
	}
	if diff := cmp.Diff(before, b.stored(one)); diff != "" {
		t.Errorf("exchanged values were changed: %s", diff)
	}
	exchange()
	rotate(t, b, ring(t, 2, 1))
	if got := b.opens(ring(t, 2), two); !slices.Equal(got, all) {
		t.Errorf("in their places: got %v, want all", got)
	}
	exchange()
	if got := slices.Concat(b.opens(ring(t, 2, 1), one), b.opens(ring(t, 2, 1), two)); len(got) != 0 {
		t.Errorf("exchanged after the rotation: %v can be read", got)
	}
	// A value under the old key that comes back, from a backup, is as readable as it was.
	b.exec("UPDATE user_secrets SET sealed = $2 WHERE id = $1", one.secret, before[keyring.UserSecrets][:20])
	b.exec("UPDATE webhooks SET sealed = $2 WHERE id = $1", one.secret, before[keyring.Webhooks][:20])
	if got := b.opens(ring(t, 2, 1), one); len(got) != 0 {
		t.Errorf("cut off: %v can be read", got)
	}
}

// TestRotationBesideWriters: while servers store values under either key, rotations in both directions lose none.
func TestRotationBesideWriters(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	rings := []*keyring.Ring{ring(t, 1, 2), ring(t, 2, 1)}
	o := b.fill(rings[0])
	ctx, stop := context.WithCancel(t.Context())
	var rotating sync.WaitGroup
	for _, r := range rings {
		rotating.Go(func() {
			for ctx.Err() == nil {
				if _, err := r.Rotate(ctx, b.db, slog.New(slog.DiscardHandler)); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 100 {
		value, r := fmt.Appendf(nil, "value %d", i), rings[i%2]
		b.exec("UPDATE user_secrets SET sealed = $2 WHERE id = $1", o.secret, r.SealSecret(keyring.SecretPlace(o.user, o.secret), value))
		b.exec("UPDATE workspace_builds SET state = $2 WHERE workspace_id = $1", o.workspace, r.Seal(o.workspace, value))
		now := b.stored(o)
		for _, kind := range []keyring.Kind{keyring.UserSecrets, keyring.WorkspaceStates} {
			if got, err := every[kind].open(rings[0], o, now[kind]); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("%s: got %q, %v; want %q", kind, got, err, value)
			}
		}
	}
	stop()
	rotating.Wait()
}

// TestCheckServers checks that nothing is rotated beside a server that encrypts with another key.
func TestCheckServers(t *testing.T) {
	t.Parallel()
	b := newBuilds(t)
	both := ring(t, 2, 1)
	check := func(want fault.Code, keys ...string) {
		t.Helper()
		b.exec("DELETE FROM servers")
		b.exec("INSERT INTO servers (id, url, version, link_version, min_link_version, state_keys, beat_at) VALUES ($1, 'http://one.example.com', 'v1', 1, 1, $2, now() + interval '1 day')", uuid.New(), keys)
		if err := both.CheckServers(t.Context(), b.db); fault.CodeOf(err) != want {
			t.Errorf("beside a server with %v: got %v, want %s", keys, err, want)
		}
	}
	old, fresh := ring(t, 1).IDs()[0], ring(t, 2).IDs()[0]
	check(fault.Conflict, old)
	check(fault.Conflict, old, fresh)
	b.exec("UPDATE servers SET beat_at = now() - interval '1 minute'")
	if err := both.CheckServers(t.Context(), b.db); err != nil {
		t.Errorf("beside a server that is gone: %v", err)
	}
	b.exec("DELETE FROM servers")
	b.exec("INSERT INTO servers (id, url, version, link_version, min_link_version, state_keys, beat_at) VALUES ($1, 'http://one.example.com', 'v1', 1, 1, $2, now() + interval '1 day')", uuid.New(), []string{fresh, old})
	if err := both.CheckServers(t.Context(), b.db); err != nil {
		t.Errorf("beside a server with the same keys: %v", err)
	}
}
