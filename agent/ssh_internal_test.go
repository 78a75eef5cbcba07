package agent

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"testing"

	"golang.org/x/crypto/ssh"
)

func testKey(t testing.TB, fill byte) ssh.Signer {
	t.Helper()
	key, err := ssh.NewSignerFromKey(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{fill}, ed25519.SeedSize)))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func hostCertificate(t testing.TB, kind uint32, key ssh.PublicKey, ca ssh.Signer) []byte {
	t.Helper()
	cert := &ssh.Certificate{CertType: kind, Key: key, ValidPrincipals: []string{"dev.coder"}, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, ca); err != nil {
		t.Fatal(err)
	}
	return cert.Marshal()
}

// TestCertifiedKey: an agent presents a certificate of its own host key only.
func TestCertifiedKey(t *testing.T) {
	t.Parallel()
	key, other := testKey(t, 1), testKey(t, 2)
	if got, err := certifiedKey(key, hostCertificate(t, ssh.HostCert, key.PublicKey(), other)); err != nil || got.PublicKey().Type() != ssh.CertAlgoED25519v01 {
		t.Errorf("%v, %v", got, err)
	}
	for name, wire := range map[string][]byte{
		"none": nil, "bytes": []byte("x"), "a key": key.PublicKey().Marshal(), "a user's": hostCertificate(t, ssh.UserCert, key.PublicKey(), other),
		"another key's": hostCertificate(t, ssh.HostCert, other.PublicKey(), other), "a large one": make([]byte, maxCertificate+1),
	} {
		if got, err := certifiedKey(key, wire); err == nil {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func FuzzCertifiedKey(f *testing.F) {
	key := testKey(f, 1)
	f.Add(hostCertificate(f, ssh.HostCert, key.PublicKey(), testKey(f, 2)))
	f.Fuzz(func(t *testing.T, wire []byte) {
		got, err := certifiedKey(key, wire)
		if err != nil {
			return
		}
		if cert := got.PublicKey().(*ssh.Certificate); !bytes.Equal(cert.Key.Marshal(), key.PublicKey().Marshal()) {
			t.Errorf("a certificate of %s", cert.Key.Type())
		}
	})
}
