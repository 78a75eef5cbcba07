package sshkey_test

import (
	"crypto"
	"crypto/dsa" //nolint:staticcheck // keys of this type must be refused
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sshkey"
)

// line returns a key as ssh-keygen writes it.
func line(t testing.TB, public crypto.PublicKey) string {
	t.Helper()
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
}

func ed(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

func ec(t testing.TB, curve elliptic.Curve) *ecdsa.PublicKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &key.PublicKey
}

// rsaOf returns a public key of a size, which no private key fits.
func rsaOf(bits uint) *rsa.PublicKey {
	n := new(big.Int).Lsh(big.NewInt(1), bits-1)
	return &rsa.PublicKey{N: n.SetBit(n, 0, 1), E: 65537}
}

// wire encodes a key of which x/crypto makes none.
func wire(kind string, fields any) string {
	return kind + " " + base64.StdEncoding.EncodeToString(ssh.Marshal(fields))
}

func securityKeys(t testing.TB) []string {
	public, _ := ed(t)
	return []string{
		wire(ssh.KeyAlgoSKED25519, struct{ Kind, Key, Application string }{ssh.KeyAlgoSKED25519, string(public), "ssh:"}),
		wire(ssh.KeyAlgoSKECDSA256, struct{ Kind, Curve, Key, Application string }{ssh.KeyAlgoSKECDSA256, "nistp256", point(t), "ssh:"}),
	}
}

// point returns a point of P-256, uncompressed.
func point(t testing.TB) string {
	t.Helper()
	key, err := ec(t, elliptic.P256()).ECDH()
	if err != nil {
		t.Fatal(err)
	}
	return string(key.Bytes())
}

func TestAccepted(t *testing.T) {
	t.Parallel()
	public, _ := ed(t)
	lines := append(securityKeys(t), line(t, public), line(t, ec(t, elliptic.P256())), line(t, ec(t, elliptic.P384())), line(t, ec(t, elliptic.P521())),
		line(t, rsaOf(3072)), line(t, rsaOf(16384)))
	for _, text := range lines {
		kind, _, _ := strings.Cut(text, " ")
		key, err := sshkey.Parse("\n  " + text + "\t ada@laptop  at home \r\n")
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if key.Type() != kind || key.Comment != "ada@laptop at home" || !strings.HasPrefix(key.Fingerprint(), "SHA256:") {
			t.Errorf("%s: got %s, %q, %s", kind, key.Type(), key.Comment, key.Fingerprint())
		}
		if again := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))); again != text {
			t.Errorf("got %.60s, want %.60s", again, text)
		}
	}
	if _, err := sshkey.Parse(line(t, public) + " of my private key"); err != nil {
		t.Errorf("a comment about private keys: %v", err)
	}
}

// TestRefused checks that everything else is refused with what to do, and that nothing of it is repeated.
func TestRefused(t *testing.T) {
	t.Parallel()
	public, private := ed(t)
	good := line(t, public)
	block, err := ssh.MarshalPrivateKey(private, "ada")
	if err != nil {
		t.Fatal(err)
	}
	pemText := string(pem.EncodeToMemory(block))
	_, body, _ := strings.Cut(pemText, "\n")
	cert := &ssh.Certificate{Key: must(ssh.NewPublicKey(public)), CertType: ssh.UserCert, ValidBefore: ssh.CertTimeInfinity}
	if err := cert.SignCert(rand.Reader, must(ssh.NewSignerFromKey(private))); err != nil {
		t.Fatal(err)
	}
	dss := &dsa.PublicKey{Parameters: dsa.Parameters{P: new(big.Int).Lsh(big.NewInt(1), 1023), Q: big.NewInt(5), G: big.NewInt(2)}, Y: big.NewInt(3)}
	data := strings.Fields(good)[1]
	raw, _ := base64.StdEncoding.DecodeString(data)
	loose := new(big.Int).SetBytes(append([]byte{1}, make([]byte, 384)...))
	const private1, options, damage = "private key", "options or other words before", "damaged or incomplete"
	for _, tt := range []struct{ what, text, want string }{
		{"an OpenSSH private key", pemText, private1},
		{"its middle", body, private1},
		{"its first line of base64", strings.SplitN(body, "\n", 2)[0], private1},
		{"a private key on one line", strings.ReplaceAll(pemText, "\n", " "), private1},
		{"an RSA private key", "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", private1},
		{"a private key behind a public one", good + "\n" + pemText, private1},
		{"a private key as a comment", good + " " + strings.ReplaceAll(pemText, "\n", ""), private1},
		{"PuTTY's private key", "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none", private1},
		{"nothing", " \n\t", "There is no key"},
		{"a key of RFC 4716", "---- BEGIN SSH2 PUBLIC KEY ----\n" + data + "\n---- END SSH2 PUBLIC KEY ----", "ssh-keygen -i -f"},
		{"a public key in PEM", "-----BEGIN PUBLIC KEY-----\n" + data + "\n-----END PUBLIC KEY-----", "PKCS8"},
		{"two keys", good + "\n" + good, "several lines"},
		{"a key that is broken over lines", good[:40] + "\r" + good[40:], "several lines"},
		{"a long text", good + " " + strings.Repeat("x", 1<<20), "too long"},
		{"a certificate", strings.TrimSpace(string(ssh.MarshalAuthorizedKey(cert))), "certificate"},
		{"DSA", line(t, dss), "DSA"},
		{"RSA of 1024 bits", line(t, rsaOf(1024)), "1024 bits are too weak"},
		{"RSA of 3071 bits", line(t, rsaOf(3071)), "3071 bits are too weak"},
		{"RSA of 16385 bits", line(t, rsaOf(16385)), damage},
		{"an RSA modulus with a leading zero", wire("ssh-rsa", struct {
			Kind string
			E    *big.Int
			N    string
		}{"ssh-rsa", big.NewInt(65537), "\x00\x00" + string(loose.Bytes())}), damage},
		{"options", `command="true",no-pty ` + good, options},
		{"an option and no space", "restrict," + good, options},
		{"the name of a host", "example.com " + good, options},
		{"a type alone", "ssh-ed25519", "incomplete"},
		{"another type's data", "ecdsa-sha2-nistp256 " + data, damage},
		{"a cut key", good[:len(good)-8], damage},
		{"data behind the key", "ssh-ed25519 " + base64.StdEncoding.EncodeToString(append(raw, 0)), damage},
		{"loose base64", good[:len(good)-1] + "!", damage},
		{"base64 for other programs", "ssh-ed25519 " + strings.NewReplacer("A", "-").Replace(data), damage},
		{"a certificate as a key", "ssh-ed25519 " + base64.StdEncoding.EncodeToString(cert.Marshal()), damage},
		{"words", "hunter2 hunter3", "not an SSH public key"},
		{"an unknown type", "ssh-rot13 " + data, "not an SSH public key"},
	} {
		_, err := sshkey.Parse(tt.text)
		f := fault.As(err)
		if f == nil || f.Code != fault.Invalid || f.Detail == "" || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a refusal with %q", tt.what, err, tt.want)
			continue
		}
		for _, word := range strings.Fields(tt.text) {
			if len(word) > 20 && strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: the refusal repeats %.30s", tt.what, word)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"laptop", "ada@my-laptop.local", "work laptop", "a+b_c", strings.Repeat("x", sshkey.MaxName)} {
		if problem := sshkey.CheckName(name); problem != "" {
			t.Errorf("%q: %s", name, problem)
		}
	}
	for _, name := range []string{"", " ", "-x", "x-", "a/b", "a  b", "a\nb", "a\x00b", "SHA256:x", "é", "-----BEGIN OPENSSH PRIVATE KEY-----", strings.Repeat("x", sshkey.MaxName+1)} {
		problem := sshkey.CheckName(name)
		if problem == "" || len(name) > 3 && strings.Contains(problem, name) {
			t.Errorf("%q: %q", name, problem)
		}
	}
}

// FuzzParse checks that what is accepted is a key of an accepted type, in its only form, and that a refusal says what to do.
func FuzzParse(f *testing.F) {
	public, _ := ed(f)
	for _, text := range append(securityKeys(f), line(f, public), line(f, rsaOf(3072)), line(f, rsaOf(1024)), line(f, ec(f, elliptic.P384())),
		"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjE\n", `command="true" ssh-ed25519 AAAA`, "ssh-ed25519", "") {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key, err := sshkey.Parse(text)
		if err != nil {
			if bad := fault.As(err); bad == nil || bad.Code != fault.Invalid || bad.Detail == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		again, err := sshkey.Parse(string(ssh.MarshalAuthorizedKey(key)))
		if err != nil || again.Fingerprint() != key.Fingerprint() {
			t.Fatalf("%q: %v", text, err)
		}
		if !strings.Contains(text, strings.Fields(string(ssh.MarshalAuthorizedKey(key)))[1]) {
			t.Fatalf("%q is not the form of its key", text)
		}
	})
}
