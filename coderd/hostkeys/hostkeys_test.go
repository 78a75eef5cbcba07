package hostkeys_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/wgquick"
)

var discard = slog.New(slog.DiscardHandler)

func ring(t *testing.T, numbers ...byte) *keyring.Ring {
	t.Helper()
	var words []string
	for _, n := range numbers {
		words = append(words, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)))
	}
	ring, err := keyring.Parse(strings.Join(words, "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// gateway returns the keys of the SSH gateway and the WireGuard gateway at a server with a ring.
func gateway(t *testing.T, db *database.DB, ring *keyring.Ring) string {
	t.Helper()
	keys, err := hostkeys.Load(t.Context(), db, ring, discard)
	if err != nil {
		t.Fatal(err)
	}
	return identity(keys)
}

func identity(keys *hostkeys.Keys) string {
	return ssh.FingerprintSHA256(keys.Gateway().PublicKey()) + " " + wgquick.Public(keys.WireGuard()).String()
}

// startTogether returns the gateways' keys at servers that start at the same moment, and at one that starts later.
func startTogether(t *testing.T, db *database.DB, ring *keyring.Ring) string {
	t.Helper()
	got := make([]string, 8)
	var starting sync.WaitGroup
	for i := range got {
		starting.Go(func() {
			keys, err := hostkeys.Load(t.Context(), db, ring, discard)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = identity(keys)
		})
	}
	starting.Wait()
	want := gateway(t, db, ring)
	for i, one := range got {
		if one != want {
			t.Errorf("server %d has %s, want %s", i, one, want)
		}
	}
	return want
}

func stored(t *testing.T, db *database.DB) []byte {
	t.Helper()
	value, err := db.GetSetting(t.Context(), string(keyring.HostSeed))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func store(t *testing.T, db *database.DB, value []byte) {
	t.Helper()
	if err := db.InsertSettingOnce(t.Context(), dbsqlc.InsertSettingOnceParams{Key: string(keyring.HostSeed), Value: value}); err != nil {
		t.Fatal(err)
	}
	if err := db.UpdateSetting(t.Context(), dbsqlc.UpdateSettingParams{Key: string(keyring.HostSeed), Value: value}); err != nil {
		t.Fatal(err)
	}
}

// seed is what an attacker who writes to the database may store.
var seed = bytes.Repeat([]byte{7}, 32)

// gatewayOfSeed and agentOfSeed are the fingerprints of the gateway's key, and an agent's, for that seed. If they change, the host keys of every
// deployment do.
const gatewayOfSeed = "SHA256:bS+S7XnEM1eqMIO8jo5XBtYdLKc9yebSoHM12cqf7CE"
const agentOfSeed = "SHA256:u7gTiF8d5z1wOWnsi+UR2DhG6TfT/TDbv6CJB7fDx3s"

// wireGuardOfSeed is the public key of the WireGuard gateway for that seed. If it changes, no device of any deployment finds its gateway.
const wireGuardOfSeed = "zHOEd2214uAh4xHu8OLBbztEkkqstliZ+ELs7Mi2QAA="

// regionOfSeed is that of the WireGuard gateway of a region.
const regionOfSeed = "FuQN7sD0qMZDmeEw/KaMXtqp/HvwQjom/80xe552HFY="

// TestKeysNeverChange checks that a seed always gives the same key, of the type that every SSH client accepts.
func TestKeysNeverChange(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	store(t, db, ring(t, 1).SealSecret(keyring.HostSeed.Place(), seed))
	keys, err := hostkeys.Load(t.Context(), db, ring(t, 1), discard)
	if err != nil {
		t.Fatal(err)
	}
	key := keys.Gateway().PublicKey()
	if got := ssh.FingerprintSHA256(key); got != gatewayOfSeed || key.Type() != ssh.KeyAlgoED25519 {
		t.Errorf("got %s %s, want %s", key.Type(), got, gatewayOfSeed)
	}
	agent, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(keys.Agent(uuid.MustParse("11111111-2222-3333-4444-555555555555"), "main")))
	if err != nil {
		t.Fatal(err)
	}
	if got := ssh.FingerprintSHA256(agent.PublicKey()); got != agentOfSeed {
		t.Errorf("an agent has the key %s, want %s", got, agentOfSeed)
	}
	private := keys.WireGuard()
	if got := wgquick.Public(private).String(); got != wireGuardOfSeed {
		t.Errorf("the WireGuard gateway has the key %s, want %s", got, wireGuardOfSeed)
	}
	if got := wgquick.Public(keys.WireGuardAt(uuid.MustParse("11111111-2222-3333-4444-555555555555"))).String(); got != regionOfSeed {
		t.Errorf("the WireGuard gateway of a region has the key %s, want %s", got, regionOfSeed)
	}
	if private[0]&7 != 0 || private[31]&0xc0 != 0x40 {
		t.Errorf("the private key of WireGuard is not clamped: it begins with %x and ends in %x", private[0], private[31])
	}
	signature, err := keys.Gateway().Sign(nil, []byte("exchange hash"))
	if err != nil {
		t.Fatal(err)
	}
	if err := key.Verify([]byte("exchange hash"), signature); err != nil {
		t.Error(err)
	}
}

// TestServersAgree checks that servers that start at the same moment have one key, which later servers have, too, and other deployments do not.
func TestServersAgree(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	want := startTogether(t, db, ring(t, 1))
	if other := gateway(t, dbtest.New(t), ring(t, 1)); other == want {
		t.Error("two deployments have the same key")
	}
}

// TestSeedIsSealed: what the database holds does not contain the seed.
func TestSeedIsSealed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	gateway(t, db, ring(t, 1))
	value := stored(t, db)
	plain, err := ring(t, 1).OpenSecret(keyring.HostSeed.Place(), value)
	if err != nil || len(plain) != 32 || bytes.Equal(plain, make([]byte, 32)) {
		t.Fatalf("got %d bytes, %v, want 32 random ones", len(plain), err)
	}
	if _, err := ring(t, 2).OpenSecret(keyring.HostSeed.Place(), value); err == nil {
		t.Error("another key opens the seed")
	}
	rows, err := db.Pool.Query(t.Context(), "SELECT value FROM settings")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var value []byte
		if err := rows.Scan(&value); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(value, plain) {
			t.Error("the seed is stored as it is")
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestRotationKeepsKeys checks that host keys survive a new state key, after which the old one is removed.
func TestRotationKeepsKeys(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	want := gateway(t, db, ring(t, 1))
	if _, err := ring(t, 2, 1).Rotate(t.Context(), db, discard); err != nil {
		t.Fatal(err)
	}
	if got := gateway(t, db, ring(t, 2)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestUnreadableSeed checks that a seed whose key is lost is replaced once, by servers that start at the same moment, too.
func TestUnreadableSeed(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	before := gateway(t, db, ring(t, 1))
	want := startTogether(t, db, ring(t, 2))
	if want == before {
		t.Error("a server without the key has the same host key")
	}
}

// TestSeedOfAnotherRing: if another server has stored a seed meanwhile that this one does not open, this one refuses to go on with a key of its own.
func TestSeedOfAnotherRing(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	gateway(t, db, ring(t, 1))
	if _, err := db.Pool.Exec(t.Context(), `CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER lose BEFORE UPDATE ON settings FOR EACH ROW EXECUTE FUNCTION lose()`); err != nil {
		t.Fatal(err)
	}
	if _, err := hostkeys.Load(t.Context(), db, ring(t, 2), discard); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("got %v, want a conflict", err)
	}
}

// TestForeignSeeds: an attacker who writes to the database cannot make servers use a seed that the attacker knows.
func TestForeignSeeds(t *testing.T) {
	t.Parallel()
	r := ring(t, 1)
	for name, value := range map[string][]byte{
		"plain":                    seed,
		"empty":                    {},
		"of another place":         r.SealSecret(keyring.ACMEPlace(string(keyring.HostSeed)), seed),
		"under the attacker's key": ring(t, 2).SealSecret(keyring.HostSeed.Place(), seed),
		"cut off":                  r.SealSecret(keyring.HostSeed.Place(), seed)[:40],
		"too short":                r.SealSecret(keyring.HostSeed.Place(), seed[:16]),
		"too long":                 r.SealSecret(keyring.HostSeed.Place(), append(bytes.Clone(seed), 7)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.New(t)
			store(t, db, value)
			got := gateway(t, db, r)
			if strings.Contains(got, gatewayOfSeed) || strings.Contains(got, wireGuardOfSeed) || bytes.Equal(stored(t, db), value) {
				t.Error("the foreign seed is used")
			}
			if again := gateway(t, db, r); again != got {
				t.Errorf("at the next start: got %s, want %s", again, got)
			}
		})
	}
}

// authorities returns both of them at a server with a ring.
func authorities(t *testing.T, db *database.DB, ring *keyring.Ring) map[string]*hostkeys.Authority {
	t.Helper()
	keys, err := hostkeys.Load(t.Context(), db, ring, discard)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*hostkeys.Authority{"user": keys.UserCA(), "host": keys.HostCA()}
}

// fingerprints returns those of an authority's keys.
func fingerprints(t *testing.T, a *hostkeys.Authority) (current, previous string) {
	t.Helper()
	keys, err := a.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if keys.Previous != nil {
		previous = ssh.FingerprintSHA256(keys.Previous.PublicKey())
	}
	return ssh.FingerprintSHA256(keys.Current.PublicKey()), previous
}

func rotate(t *testing.T, db *database.DB, a *hostkeys.Authority) {
	t.Helper()
	if err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
		_, err := a.Rotate(t.Context(), q)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAuthorities: each authority has keys of its own, which all servers see change in a rotation: the new one and the one before count.
func TestAuthorities(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	one, other := authorities(t, db, ring(t, 1)), authorities(t, db, ring(t, 1))
	seen := map[string]bool{}
	for name := range one {
		first, none := fingerprints(t, one[name])
		if again, _ := fingerprints(t, other[name]); again != first || none != "" || seen[first] {
			t.Errorf("%s: one server has %s, another %s, and before that there was %q", name, first, again, none)
		}
		rotate(t, db, one[name])
		second, before := fingerprints(t, other[name])
		if before != first || second == first {
			t.Errorf("%s: after a rotation of %s: %s, %s", name, first, second, before)
		}
		rotate(t, db, other[name])
		third, before := fingerprints(t, one[name])
		if before != second || third == second || third == first {
			t.Errorf("%s: after a rotation of %s: %s, %s", name, second, third, before)
		}
		seen[first], seen[second], seen[third] = true, true, true
	}
	before := authorities(t, db, ring(t, 1))
	if _, err := ring(t, 2, 1).Rotate(t.Context(), db, discard); err != nil {
		t.Fatal(err)
	}
	for name, after := range authorities(t, db, ring(t, 2)) {
		stored, err := db.GetSetting(t.Context(), "ssh_"+name+"_ca")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := before[name].Keys(t.Context()); err == nil {
			t.Errorf("%s: a server without the new state key reads %x", name, stored)
		}
		if current, previous := fingerprints(t, after); !seen[current] || !seen[previous] {
			t.Errorf("%s: with a new state key: %s, %s", name, current, previous)
		}
	}
}

// TestRotationsAtOnce: rotations that meet follow each other: none is lost.
func TestRotationsAtOnce(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	a := authorities(t, db, ring(t, 1))["user"]
	var rotating sync.WaitGroup
	keys := make([]hostkeys.Pair, 6)
	for i := range keys {
		rotating.Go(func() {
			if err := db.InTx(t.Context(), func(q *dbsqlc.Queries) (err error) {
				keys[i], err = a.Rotate(t.Context(), q)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	rotating.Wait()
	predecessors := map[string]bool{}
	for _, pair := range keys {
		if pair.Previous != nil {
			predecessors[ssh.FingerprintSHA256(pair.Previous.PublicKey())] = true
		}
	}
	if len(predecessors) != len(keys) {
		t.Errorf("%d rotations followed %d keys", len(keys), len(predecessors))
	}
}

// TestUnreadableAuthorities: a server whose key is not the one in the database signs with no authority, and one that starts replaces it.
func TestUnreadableAuthorities(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	running := authorities(t, db, ring(t, 1))["user"]
	first, _ := fingerprints(t, running)
	seven := func(n int) []byte { return bytes.Repeat([]byte{7}, n) }
	known, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(seven(32)))
	if err != nil {
		t.Fatal(err)
	}
	r := ring(t, 1)
	for name, value := range map[string][]byte{
		"plain": seven(32), "another's": ring(t, 2).SealSecret(keyring.UserCA.Place(), seven(32)), "the other authority's": r.SealSecret(keyring.HostCA.Place(), seven(32)),
		"the seed's": r.SealSecret(keyring.HostSeed.Place(), seven(32)), "short": r.SealSecret(keyring.UserCA.Place(), seven(31)), "long": r.SealSecret(keyring.UserCA.Place(), seven(96)),
	} {
		if err := db.UpdateSetting(t.Context(), dbsqlc.UpdateSettingParams{Key: string(keyring.UserCA), Value: value}); err != nil {
			t.Fatal(err)
		}
		if keys, err := running.Keys(t.Context()); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: %v, %v", name, keys, err)
		}
		if err := db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
			_, err := running.Rotate(t.Context(), q)
			return err
		}); fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("%s: rotated: %v", name, err)
		}
		current, previous := fingerprints(t, authorities(t, db, r)["user"])
		if current == ssh.FingerprintSHA256(known.PublicKey()) || previous != "" || current == first {
			t.Errorf("%s: a server that starts has %s, %s", name, current, previous)
		}
	}
}
