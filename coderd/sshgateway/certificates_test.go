package sshgateway_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/coderd/hostkeys"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// certified returns a new key with a certificate that the holder of a client's session gets for it.
func certified(t *testing.T, client *sdk.Client, sources ...string) ssh.Signer {
	t.Helper()
	key := newKey(t)
	made, err := client.CreateSSHCertificate(t.Context(), sdk.CreateSSHCertificateRequest{
		PublicKey: string(ssh.MarshalAuthorizedKey(key.PublicKey())), TTL: time.Hour, SourceAddresses: sources,
	})
	if err != nil {
		t.Fatal(err)
	}
	parsed, _, _, _, err := ssh.ParseAuthorizedKey([]byte(made.Certificate))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewCertSigner(parsed.(*ssh.Certificate), key)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// token returns a client with a token of a user, of some scopes, and its id.
func (w *world) token(t *testing.T, user string, req sdk.CreateTokenRequest) (*sdk.Client, string) {
	t.Helper()
	made, err := w.As(user).CreateToken(t.Context(), sdk.Me, req)
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(made.Key, "-")
	return w.With(secret.Token(made.Key)), id
}

// refuses checks that a key does not sign in.
func (w *world) refuses(t *testing.T, what string, key ssh.Signer) {
	t.Helper()
	if c, err := w.dial(t, "ann/dev", key); err == nil {
		c.Close()
		t.Errorf("%s signs in", what)
	}
}

// reaches waits until a key reaches Ann's workspace.
func (w *world) reaches(t *testing.T, key ssh.Signer) {
	t.Helper()
	testwait.Until(t, "the agent is reached", func() error {
		c, err := w.dial(t, "ann/dev", key)
		if err != nil {
			return err
		}
		out, errs := says(t, c)
		return testwait.Equal(out+errs, "hello")
	})
}

// TestCertificates: a certificate signs in its user, with the rights of the token that asked for it, from where it may.
func TestCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reaches(t, certified(t, w.As("ann")))
	w.reaches(t, certified(t, w.As("ann"), "192.0.2.0/24", "127.0.0.0/8"))
	w.refuses(t, "a certificate for another network", certified(t, w.As("ann"), "192.0.2.0/24", "2001:db8::1"))

	ci, _ := w.token(t, "ann", sdk.CreateTokenRequest{Scopes: []string{"workspace:ssh"}, AllowList: []string{"workspace:" + w.workspace.String()}})
	w.reaches(t, certified(t, ci))
	elsewhere, _ := w.token(t, "ann", sdk.CreateTokenRequest{Scopes: []string{"workspace:ssh"}, AllowList: []string{"workspace:" + uuid.NewString()}})
	c, err := w.dial(t, "ann/dev", certified(t, elsewhere))
	if err != nil {
		t.Fatal(err)
	}
	if out, errs := says(t, c); out != "" || errs == "" {
		t.Errorf("a token for another workspace reaches this one: %q, %q", out, errs)
	}
	if _, err := c.Dial("tcp", "dev.ann.coder:22"); err == nil {
		t.Error("a token for another workspace jumps to this one")
	}
	reader, _ := w.token(t, "ann", sdk.CreateTokenRequest{Scopes: []string{"workspace:read", "user_ssh_key:*"}})
	if _, err := reader.CreateSSHCertificate(t.Context(), sdk.CreateSSHCertificateRequest{PublicKey: string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))}); err == nil {
		t.Error("a token without workspace:ssh gets a certificate")
	}
	bobs, err := w.dial(t, "ann/dev", certified(t, w.As("bob")))
	if err != nil {
		t.Fatal(err)
	}
	if out, errs := says(t, bobs); out != "" || !strings.HasPrefix(errs, "No running workspace") {
		t.Errorf("Bob is told %q, %q", out, errs)
	}
}

// TestNarrowCertificateStartsNothing: the certificate of a token that may only connect does not start a workspace.
func TestNarrowCertificateStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ci, _ := w.token(t, "ann", sdk.CreateTokenRequest{Scopes: []string{"workspace:ssh", "workspace:read"}})
	key := certified(t, ci)
	w.reaches(t, key)
	before := w.Get(w.workspace).LatestBuild.BuildNumber
	w.Exec("UPDATE workspace_builds SET transition = 'stop'")
	c, err := w.dial(t, "dev", key)
	if err != nil {
		t.Fatal(err)
	}
	if out, errs := says(t, c); out != "" || errs == "" || strings.Contains(errs, "Starting") {
		t.Errorf("told %q, %q", out, errs)
	}
	if after := w.Get(w.workspace).LatestBuild.BuildNumber; after != before {
		t.Errorf("build %d followed %d", after, before)
	}
}

// borrowed is a certificate whose key the client does not have.
type borrowed struct {
	ssh.Signer
	cert ssh.PublicKey
}

func (b borrowed) PublicKey() ssh.PublicKey { return b.cert }

// offers lets OpenSSH offer a certificate whose private key it does not have, which the server would accept, and sign
// in with Bob's key: it is Bob.
func (w *world) offers(t *testing.T, cert ssh.PublicKey) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	bob, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	w.register(t, "bob", bob, "openssh")
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{
		"bob": pem.EncodeToMemory(block), "bob.pub": ssh.MarshalAuthorizedKey(bob.PublicKey()),
		"ann.pub": ssh.MarshalAuthorizedKey(cert.(*ssh.Certificate).Key), "ann-cert.pub": ssh.MarshalAuthorizedKey(cert),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, port, err := net.SplitHostPort(w.addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "ssh", "-v", "-F", "none", "-p", port, "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile="+filepath.Join(dir, "known"), "-o", "CertificateFile="+filepath.Join(dir, "ann-cert.pub"), "-i", filepath.Join(dir, "ann.pub"),
		"-i", filepath.Join(dir, "bob"), "ann/dev@127.0.0.1", "hello")
	cmd.Env = append(os.Environ(), "SSH_AUTH_SOCK=")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err == nil || stdout.Len() > 0 || !strings.Contains(stderr.String(), "\nNo running workspace") {
		t.Errorf("Bob with Ann's certificate: %v, %q\n%s", err, &stdout, &stderr)
	}
	if text := stderr.String(); strings.Count(text, "Server accepts key") < 2 {
		t.Errorf("Ann's certificate was not offered:\n%s", text)
	}
}

// TestForgedCertificates: what an attacker can make of certificates signs in no one.
func TestForgedCertificates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	anns := certified(t, w.As("ann"))
	w.reaches(t, anns)
	w.refuses(t, "a certificate without its key", borrowed{newKey(t), anns.PublicKey()})
	w.refuses(t, "the certified key without the certificate", borrowed{newKey(t), anns.PublicKey().(*ssh.Certificate).Key})

	w.offers(t, anns.PublicKey())

	keys, err := hostkeys.Load(t.Context(), w.DB, w.States, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	users, err := keys.UserCA().Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := keys.HostCA().Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	forge := func(ca ssh.Signer, edit func(*ssh.Certificate)) ssh.Signer {
		key, cert := newKey(t), *anns.PublicKey().(*ssh.Certificate)
		cert.Key = key.PublicKey()
		edit(&cert)
		if err := cert.SignCert(rand.Reader, ca); err != nil {
			t.Fatal(err)
		}
		signer, err := ssh.NewCertSigner(&cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return signer
	}
	w.reaches(t, forge(users.Current, func(*ssh.Certificate) {})) // so that the others fail for what is changed
	past, future := uint64(time.Now().Add(-time.Second).Unix()), uint64(time.Now().Add(time.Hour).Unix())
	for what, key := range map[string]ssh.Signer{
		"another CA's":           forge(newKey(t), func(*ssh.Certificate) {}),
		"the host CA's":          forge(hosts.Current, func(*ssh.Certificate) {}),
		"expired":                forge(users.Current, func(c *ssh.Certificate) { c.ValidBefore = past }),
		"not yet valid":          forge(users.Current, func(c *ssh.Certificate) { c.ValidAfter = future }),
		"for another user":       forge(users.Current, func(c *ssh.Certificate) { c.ValidPrincipals = []string{w.User("bob").String()} }),
		"for a name":             forge(users.Current, func(c *ssh.Certificate) { c.ValidPrincipals = []string{"ann"} }),
		"for two principals":     forge(users.Current, func(c *ssh.Certificate) { c.ValidPrincipals = append(c.ValidPrincipals, "bob") }),
		"for all":                forge(users.Current, func(c *ssh.Certificate) { c.ValidPrincipals = nil }),
		"a host's":               forge(users.Current, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }),
		"with a forced command":  forge(users.Current, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"force-command": "true"} }),
		"for addresses of none":  forge(users.Current, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"source-address": ""} }),
		"for broken addresses":   forge(users.Current, func(c *ssh.Certificate) { c.CriticalOptions = map[string]string{"source-address": "x,127.0.0.1"} }),
		"with 200 kB of comment": forge(newKey(t), func(c *ssh.Certificate) { c.KeyId = strings.Repeat("x", 200_000) }),
	} {
		w.refuses(t, "a certificate that is "+what, key)
	}
}

// stays opens a session with a key that stays, and returns a channel that is closed when the server ends it.
func (w *world) stays(t *testing.T, key ssh.Signer) <-chan struct{} {
	t.Helper()
	w.keys["certified"] = key
	return w.staying(t, "certified", "ann/dev")
}

// TestCertificateRevocations: a certificate, and what it has opened, ends with what it stands for.
func TestCertificateRevocations(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ends := func(what string, key ssh.Signer, open <-chan struct{}) {
		t.Helper()
		testwait.For(t, "the session ends: "+what, open)
		w.refuses(t, what, key)
	}
	client, id := w.token(t, "ann", sdk.CreateTokenRequest{TokenName: "ci"})
	revoked, kept := certified(t, client), certified(t, w.As("ann"))
	first, second := w.stays(t, revoked), w.stays(t, kept)
	if err := w.As("ann").DeleteAPIKey(t.Context(), sdk.Me, id); err != nil {
		t.Fatal(err)
	}
	ends("the token is revoked", revoked, first)
	select {
	case <-second:
		t.Error("the session of another certificate ended")
	default:
	}

	client, _ = w.token(t, "ann", sdk.CreateTokenRequest{TokenName: "short"})
	short := certified(t, client)
	open := w.stays(t, short)
	w.Exec("UPDATE api_keys SET expires_at = now() + interval '1 second' WHERE name = 'short'")
	w.Exec("SELECT pg_notify('users_revoked', $1)", w.User("ann").String())
	ends("the token expires", short, open)

	if _, err := w.As("bob").RotateSSHAuthority(t.Context(), sdk.SSHUserCA); err == nil {
		t.Error("a member rotates the CA")
	}
	for range 2 {
		w.reaches(t, kept)
		if _, err := w.As("olga").RotateSSHAuthority(t.Context(), sdk.SSHUserCA); err != nil {
			t.Fatal(err)
		}
	}
	ends("the CA is rotated twice", kept, second)

	again := certified(t, w.As("ann"))
	open = w.stays(t, again)
	if _, err := w.As("olga").SuspendUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	ends("the user is suspended", again, open)
	log, err := w.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: "resource_type:ssh_certificate", Limit: 100})
	if err != nil || len(log.AuditLogs) != 4 || log.AuditLogs[0].Description != "ann created SSH certificate "+ssh.FingerprintSHA256(again.PublicKey().(*ssh.Certificate).Key) {
		t.Errorf("the audit log has %+v, %v", log, err)
	}
	log, err = w.As("olga").AuditLogs(t.Context(), sdk.LogQuery{Q: "resource_type:ssh_certificate_authority", Limit: 100})
	if err != nil || len(log.AuditLogs) != 3 {
		t.Errorf("the audit log has %+v, %v", log, err)
	}
}

// TestHostCA: who trusts the host CA knows the gateway. Owners rotate it. Bad requests for certificates are refused.
func TestHostCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ca, err := w.As("bob").SSHHostAuthority(t.Context())
	if err != nil || ca.PreviousPublicKey != "" || len(ca.KnownHosts) != 1 {
		t.Fatalf("%+v, %v", ca, err)
	}
	host, port, _ := strings.Cut(w.addr, ":")
	if want := "@cert-authority *.coder," + host + ",[" + host + "]:" + port + " " + ca.PublicKey; ca.KnownHosts[0] != want {
		t.Errorf("got %q, want %q", ca.KnownHosts[0], want)
	}
	trusting := func(line string) *ssh.ClientConfig {
		t.Helper()
		authority, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		checker := ssh.CertChecker{IsHostAuthority: func(key ssh.PublicKey, _ string) bool { return bytes.Equal(key.Marshal(), authority.Marshal()) }}
		return &ssh.ClientConfig{
			User: "ann/dev", Auth: []ssh.AuthMethod{ssh.PublicKeys(w.key(t, "ann"))}, HostKeyCallback: checker.CheckHostKey,
			HostKeyAlgorithms: []string{ssh.CertAlgoED25519v01},
		}
	}
	connects := func(line string) error {
		c, err := ssh.Dial("tcp", w.addr, trusting(line))
		if err == nil {
			c.Close()
		}
		return err
	}
	if err := connects(ca.PublicKey); err != nil {
		t.Error(err)
	}
	if err := connects(string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))); err == nil {
		t.Error("a client that trusts another CA accepts the gateway")
	}
	if _, err := w.As("ann").RotateSSHAuthority(t.Context(), sdk.SSHHostCA); err == nil {
		t.Error("a member rotates the CA")
	}
	rotated, err := w.As("olga").RotateSSHAuthority(t.Context(), sdk.SSHHostCA)
	if err != nil || rotated.PreviousPublicKey != ca.PublicKey || len(rotated.KnownHosts) != 2 || rotated.KnownHosts[1] != ca.KnownHosts[0] {
		t.Errorf("%+v, %v", rotated, err)
	}
	for _, line := range []string{"", "x", "ssh-ed25519"} { // nothing of a bad request is signed
		if made, err := w.As("ann").CreateSSHCertificate(t.Context(), sdk.CreateSSHCertificateRequest{PublicKey: line}); err == nil {
			t.Errorf("%q: %+v", line, made)
		}
	}
	public := string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))
	for name, req := range map[string]sdk.CreateSSHCertificateRequest{
		"too long":      {PublicKey: public, TTL: 12*time.Hour + 1},
		"negative":      {PublicKey: public, TTL: -time.Hour},
		"too short":     {PublicKey: public, TTL: time.Second},
		"no network":    {PublicKey: public, SourceAddresses: []string{"here"}},
		"two in one":    {PublicKey: public, SourceAddresses: []string{"192.0.2.1,0.0.0.0/0"}},
		"a negation":    {PublicKey: public, SourceAddresses: []string{"!192.0.2.1"}},
		"an empty one":  {PublicKey: public, SourceAddresses: []string{""}},
		"many networks": {PublicKey: public, SourceAddresses: strings.Split(strings.Repeat("192.0.2.1,", 33), ",")[:33]},
	} {
		if made, err := w.As("ann").CreateSSHCertificate(t.Context(), req); err == nil {
			t.Errorf("%s: %+v", name, made)
		}
	}
}
