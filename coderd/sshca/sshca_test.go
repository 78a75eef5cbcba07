package sshca_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/database/dbtest"
	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/coderd/keyring"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/sshca"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

var discard = slog.New(slog.DiscardHandler)

// oneSession is the only session of the only user.
type oneSession struct {
	user uuid.UUID
	id   string
}

func (o oneSession) Session(_ context.Context, id string, user uuid.UUID) (rbac.Actor, error) {
	if id != o.id || user != o.user {
		return rbac.Actor{}, fault.New(fault.Unauthenticated, "The session has ended.")
	}
	return rbac.Actor{UserID: user, KeyID: id}, nil
}

type world struct {
	*sshca.Service
	db   *database.DB
	keys *hostkeys.Keys
	ann  oneSession
	now  time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ring, err := keyring.Parse(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{db: dbtest.New(t), ann: oneSession{uuid.New(), "abcdefghij"}, now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	if w.keys, err = hostkeys.Load(t.Context(), w.db, ring, discard); err != nil {
		t.Fatal(err)
	}
	w.Service = sshca.New(sshca.Options{
		DB: w.db, Logger: discard, Keys: w.keys, Accounts: w.ann, Address: "SSH.example.com:2222", Now: func() time.Time { return w.now },
	})
	return w
}

func newKey(t testing.TB) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// cert returns what the service signs for Ann, changed by edit and signed by an authority.
func (w *world) cert(t *testing.T, by ssh.Signer, edit func(*ssh.Certificate)) *ssh.Certificate {
	t.Helper()
	c := &ssh.Certificate{
		CertType: ssh.UserCert, Key: newKey(t).PublicKey(), KeyId: "session:" + w.ann.id, ValidPrincipals: []string{w.ann.user.String()},
		ValidAfter: uint64(w.now.Add(-time.Minute).Unix()), ValidBefore: uint64(w.now.Add(time.Hour).Unix()),
	}
	edit(c)
	if err := c.SignCert(rand.Reader, by); err != nil {
		t.Fatal(err)
	}
	parsed, err := ssh.ParsePublicKey(c.Marshal()) // as it comes from a client
	if err != nil {
		t.Fatal(err)
	}
	return parsed.(*ssh.Certificate)
}

func pair(t *testing.T, a *hostkeys.Authority) hostkeys.Pair {
	t.Helper()
	keys, err := a.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (w *world) rotate(t *testing.T, a *hostkeys.Authority) {
	t.Helper()
	if err := w.db.InTx(t.Context(), func(q *dbsqlc.Queries) error {
		_, err := a.Rotate(t.Context(), q)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUserCertificates: a certificate of the user CA signs in, and none that an attacker makes or changes.
func TestUserCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ca := pair(t, w.keys.UserCA()).Current
	same := func(*ssh.Certificate) {}
	for name, c := range map[string]*ssh.Certificate{
		"ours": w.cert(t, ca, same),
		"with a known critical option": w.cert(t, ca, func(c *ssh.Certificate) {
			c.CriticalOptions = map[string]string{"source-address": "192.0.2.0/24"}
		}),
	} {
		if actor, err := w.SignIn(t.Context(), c); err != nil || actor.UserID != w.ann.user || actor.KeyID != w.ann.id {
			t.Errorf("%s: %+v, %v", name, actor, err)
		}
	}
	flipped := w.cert(t, ca, same)
	flipped.ValidBefore++
	swapped := w.cert(t, ca, same)
	swapped.Key = newKey(t).PublicKey()
	unsigned := w.cert(t, ca, same)
	unsigned.Signature.Blob = make([]byte, len(unsigned.Signature.Blob))
	for name, c := range map[string]*ssh.Certificate{
		"of another CA":           w.cert(t, newKey(t), same),
		"of the host CA":          w.cert(t, pair(t, w.keys.HostCA()).Current, same),
		"of the gateway's key":    w.cert(t, w.keys.Gateway(), same),
		"with another time":       flipped,
		"with another key":        swapped,
		"without a signature":     unsigned,
		"a host's":                w.cert(t, ca, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }),
		"of no type":              w.cert(t, ca, func(c *ssh.Certificate) { c.CertType = 0 }),
		"expired":                 w.cert(t, ca, func(c *ssh.Certificate) { c.ValidBefore = uint64(w.now.Unix()) }),
		"not yet valid":           w.cert(t, ca, func(c *ssh.Certificate) { c.ValidAfter = uint64(w.now.Unix()) + 1 }),
		"without an end":          w.cert(t, ca, func(c *ssh.Certificate) { c.ValidBefore = ssh.CertTimeInfinity }),
		"beginning in the clouds": w.cert(t, ca, func(c *ssh.Certificate) { c.ValidAfter = 1 << 63 }),
		"for every user":          w.cert(t, ca, func(c *ssh.Certificate) { c.ValidPrincipals = nil }),
		"for another user":        w.cert(t, ca, func(c *ssh.Certificate) { c.ValidPrincipals = []string{uuid.NewString()} }),
		"for a name":              w.cert(t, ca, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"ann"} }),
		"for two":                 w.cert(t, ca, func(c *ssh.Certificate) { c.ValidPrincipals = append(c.ValidPrincipals, "root") }),
		"for an id in capitals":   w.cert(t, ca, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"{" + w.ann.user.String() + "}"} }),
		"of another session":      w.cert(t, ca, func(c *ssh.Certificate) { c.KeyId = "session:other" }),
		"of no session":           w.cert(t, ca, func(c *ssh.Certificate) { c.KeyId = w.ann.id }),
		"that forces a command": w.cert(t, ca, func(c *ssh.Certificate) {
			c.CriticalOptions = map[string]string{"force-command": "true"}
		}),
		"with two options": w.cert(t, ca, func(c *ssh.Certificate) {
			c.CriticalOptions = map[string]string{"source-address": "192.0.2.1/32", "verify-required": ""}
		}),
	} {
		if actor, err := w.SignIn(t.Context(), c); fault.CodeOf(err) != fault.Unauthenticated || actor.UserID != uuid.Nil {
			t.Errorf("a certificate %s signs in %v, %v", name, actor.UserID, err)
		}
	}
	open := w.cert(t, ca, same)
	w.now = w.now.Add(2 * time.Hour)
	if _, err := w.SignIn(t.Context(), open); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("it signs in after its end: %v", err)
	}
	if _, err := w.Holder(t.Context(), open); err != nil {
		t.Errorf("what it has opened ends with it: %v", err)
	}
}

// TestRotation: certificates of the previous key count, and those of the key before do not.
func TestRotation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.cert(t, pair(t, w.keys.UserCA()).Current, func(*ssh.Certificate) {})
	w.rotate(t, w.keys.UserCA())
	second := w.cert(t, pair(t, w.keys.UserCA()).Current, func(*ssh.Certificate) {})
	for _, c := range []*ssh.Certificate{first, second} {
		if _, err := w.SignIn(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	w.rotate(t, w.keys.UserCA())
	if _, err := w.SignIn(t.Context(), second); err != nil {
		t.Error(err)
	}
	for _, judge := range []func(context.Context, *ssh.Certificate) (rbac.Actor, error){w.SignIn, w.Holder} {
		if _, err := judge(t.Context(), first); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("a certificate of a key that is gone: %v", err)
		}
	}
}

// trusts checks that a client that trusts an authority accepts a certificate for hosts, and for no others.
func trusts(t *testing.T, authority ssh.PublicKey, now time.Time, cert *ssh.Certificate, hosts []string) {
	t.Helper()
	checker := ssh.CertChecker{
		IsHostAuthority: func(key ssh.PublicKey, _ string) bool { return bytes.Equal(key.Marshal(), authority.Marshal()) },
		Clock:           func() time.Time { return now },
	}
	for _, host := range hosts {
		if err := checker.CheckHostKey(net.JoinHostPort(host, "22"), nil, cert); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, host := range []string{"dev.bob.coder", "example.com", "coder", "other.dev.ann.coder", "*", ""} {
		if err := checker.CheckHostKey(net.JoinHostPort(host, "22"), nil, cert); err == nil {
			t.Errorf("the certificate is one for %q", host)
		}
	}
}

// TestHostCertificates: the gateway and agents are certified for their own names.
func TestHostCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	workspace := uuid.New()
	agent := func() *ssh.Certificate {
		t.Helper()
		wire, err := w.CertifyAgent(t.Context(), workspace, "Ann", "dev", "main")
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ssh.ParsePublicKey(wire)
		if err != nil {
			t.Fatal(err)
		}
		return parsed.(*ssh.Certificate)
	}
	gateway := func() *ssh.Certificate {
		t.Helper()
		keys := w.HostKeys(t.Context())
		if len(keys) != 2 || !bytes.Equal(keys[1].PublicKey().Marshal(), w.keys.Gateway().PublicKey().Marshal()) {
			t.Fatalf("the gateway presents %d keys", len(keys))
		}
		return keys[0].PublicKey().(*ssh.Certificate)
	}
	first := pair(t, w.keys.HostCA()).Current.PublicKey()
	host, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(w.keys.Agent(workspace, "main")).Public())
	if err != nil {
		t.Fatal(err)
	}
	if c := agent(); !bytes.Equal(c.Key.Marshal(), host.Marshal()) {
		t.Error("another key is certified")
	}
	trusts(t, first, w.now, agent(), []string{"dev.coder", "dev.ann.coder", "main.dev.ann.coder"})
	trusts(t, first, w.now.Add(29*24*time.Hour), agent(), []string{"dev.coder"})
	trusts(t, first, w.now, gateway(), []string{"ssh.example.com"})
	w.rotate(t, w.keys.HostCA())
	second := pair(t, w.keys.HostCA()).Current.PublicKey()
	trusts(t, second, w.now, agent(), []string{"dev.coder", "dev.ann.coder", "main.dev.ann.coder"})
	trusts(t, first, w.now, gateway(), []string{"ssh.example.com"}) // for a minute
	w.now = w.now.Add(2 * time.Minute)
	trusts(t, second, w.now, gateway(), []string{"ssh.example.com"})

	// While the database does not answer, the last certificate stays.
	w.now = w.now.Add(time.Hour)
	w.db.Pool.Close()
	trusts(t, second, w.now, gateway(), []string{"ssh.example.com"})
}

// TestHostileNames: no name is certified that could stand for other hosts.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, names := range [][3]string{
		{"*", "dev", "main"}, {"ann", "*", "main"}, {"ann", "d?v", "main"}, {"ann", "a,b", "main"}, {"", "dev", "main"}, {"ann", "", "main"}, {"ann", "dev.bob", "main"},
		{"bob.coder", "dev", "main"}, {"ann", "dev\n", "main"}, {"ann", "!dev", "main"},
	} {
		if wire, err := w.CertifyAgent(t.Context(), uuid.New(), names[0], names[1], names[2]); err != nil || wire != nil {
			t.Errorf("%q: %x, %v", names, wire, err)
		}
	}
	for _, agent := range []string{"*", "a.b", "", "x\x00", "a b"} {
		wire, err := w.CertifyAgent(t.Context(), uuid.New(), "ann", "dev", agent)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ssh.ParsePublicKey(wire)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.(*ssh.Certificate).ValidPrincipals; !slices.Equal(got, []string{"dev.coder", "dev.ann.coder"}) {
			t.Errorf("agent %q: %q", agent, got)
		}
	}
}

// noSession knows no session, and reports that it was asked.
type noSession struct{ t *testing.T }

func (n noSession) Session(context.Context, string, uuid.UUID) (rbac.Actor, error) {
	n.t.Error("a certificate that this deployment has not signed reached the sessions")
	return rbac.Actor{}, fault.New(fault.Unauthenticated, "The session has ended.")
}

// FuzzCertificate: no bytes that a client sends sign in, or break the server: only the CA makes such that do.
func FuzzCertificate(f *testing.F) {
	ring, err := keyring.Parse(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		f.Fatal(err)
	}
	db := dbtest.New(f)
	keys, err := hostkeys.Load(f.Context(), db, ring, discard)
	if err != nil {
		f.Fatal(err)
	}
	for _, kind := range []uint32{ssh.UserCert, ssh.HostCert} {
		c := &ssh.Certificate{
			CertType: kind, Key: newKey(f).PublicKey(), KeyId: "session:abcdefghij", ValidPrincipals: []string{uuid.NewString()}, ValidBefore: ssh.CertTimeInfinity,
			Permissions: ssh.Permissions{CriticalOptions: map[string]string{"source-address": "192.0.2.0/24"}},
		}
		if err := c.SignCert(rand.Reader, newKey(f)); err != nil {
			f.Fatal(err)
		}
		f.Add(c.Marshal())
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		key, err := ssh.ParsePublicKey(wire)
		if err != nil {
			return
		}
		cert, ok := key.(*ssh.Certificate)
		if !ok {
			return
		}
		s := sshca.New(sshca.Options{DB: db, Logger: discard, Keys: keys, Accounts: noSession{t}})
		if actor, err := s.SignIn(t.Context(), cert); fault.CodeOf(err) != fault.Unauthenticated || actor.UserID != uuid.Nil {
			t.Errorf("it signs in %v, %v", actor.UserID, err)
		}
	})
}
