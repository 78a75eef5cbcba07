package account

import (
	"crypto/ed25519"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

func certify(t testing.TB, key ssh.PublicKey, edit func(*ssh.Certificate)) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert := &ssh.Certificate{CertType: ssh.UserCert, Key: key, ValidBefore: uint64(time.Now().Add(time.Hour).Unix())}
	edit(cert)
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(cert))
}

// TestCheckedCertificate: only a certificate of the key is written.
func TestCheckedCertificate(t *testing.T) {
	t.Parallel()
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(goodKey))
	if err != nil {
		t.Fatal(err)
	}
	good := certify(t, key, func(*ssh.Certificate) {})
	got, err := checkedCertificate(goodKey, good)
	if want := strings.TrimSpace(good) + " ann@laptop\n"; err != nil || string(got) != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := ssh.NewPublicKey(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]string{
		"a key": goodKey, "none": "", "text": "hello\n", "another key's": certify(t, foreign, func(*ssh.Certificate) {}),
		"a host's": certify(t, key, func(c *ssh.Certificate) { c.CertType = ssh.HostCert }), "a large one": good + strings.Repeat(" ", maxCertificate),
	} {
		if got, err := checkedCertificate(goodKey, answer); err == nil {
			t.Errorf("%s is taken: %q", name, got)
		}
	}
}

func FuzzCheckedCertificate(f *testing.F) {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(goodKey))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(certify(f, key, func(*ssh.Certificate) {}))
	f.Add(goodKey)
	f.Fuzz(func(t *testing.T, answer string) {
		line, err := checkedCertificate(goodKey, answer)
		if err == nil && (strings.Count(string(line), "\n") != 1 || !strings.HasPrefix(string(line), ssh.CertAlgoED25519v01+" ")) {
			t.Errorf("%q became %q", answer, line)
		}
	})
}
