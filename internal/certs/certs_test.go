package certs_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert, a.key, a.pem, _ = issue(t, "authority", nil, true)
	return a
}

// issue makes a certificate, signed by parent, or self-signed.
func issue(t *testing.T, name string, parent *authority, isCA bool) (cert *x509.Certificate, key *ecdsa.PrivateKey, certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IsCA: isCA, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), // synctest's clock starts in 2000
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signer, signerKey := template, key
	if parent != nil {
		signer, signerKey = parent.cert, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, signerKey)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// pair writes a certificate and its key into dir.
func (a *authority) pair(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	_, _, certPEM, keyPEM := issue(t, name, a, false)
	return put(t, dir, name+".pem", certPEM), put(t, dir, name+".key", keyPEM)
}

func put(t *testing.T, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// handshake connects a client to the store over a pipe, and returns the name in the server's certificate.
func handshake(t *testing.T, server *tls.Config, client *tls.Config) (string, error) {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	served := make(chan error, 1)
	go func() {
		defer far.Close()
		conn := tls.Server(far, server)
		err := conn.HandshakeContext(t.Context())
		if err == nil {
			_, err = conn.Write([]byte("x")) // the client learns that its certificate is accepted
		}
		served <- err
	}()
	conn := tls.Client(near, client)
	_, err := conn.Read(make([]byte, 1))
	near.Close()
	<-served
	if err != nil {
		return "", err
	}
	return conn.ConnectionState().PeerCertificates[0].DNSNames[0], nil
}

func (a *authority) client(name string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool, ServerName: name}
}

func TestNames(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	oneCert, oneKey := a.pair(t, dir, "one.example.com")
	twoCert, twoKey := a.pair(t, dir, "two.example.com")
	s, err := certs.New(certs.Options{Logger: slog.New(slog.DiscardHandler), CertFiles: []string{oneCert, twoCert}, KeyFiles: []string{oneKey, twoKey}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one.example.com", "two.example.com"} {
		if got, err := handshake(t, s.Config(), a.client(name)); err != nil || got != name {
			t.Errorf("asked for %s, got %q, %v", name, got, err)
		}
	}
	other := a.client("three.example.com")
	other.InsecureSkipVerify = true
	if got, err := handshake(t, s.Config(), other); err != nil || got != "one.example.com" {
		t.Errorf("asked for an unknown name, got %q, %v", got, err)
	}
	old := a.client("one.example.com")
	old.MaxVersion = tls.VersionTLS11
	if _, err := handshake(t, s.Config(), old); err == nil {
		t.Error("TLS 1.1 is accepted")
	}
}

// TestReload: changed files are used, and files that cannot be used change nothing until they are repaired.
func TestReload(t *testing.T) {
	t.Parallel()
	a, b, dir := newAuthority(t), newAuthority(t), t.TempDir()
	cert, key := a.pair(t, dir, "coder.example.com")
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s, err := certs.New(certs.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), CertFiles: []string{cert}, KeyFiles: []string{key}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		check := func(step string, by *authority) {
			t.Helper()
			time.Sleep(time.Minute) // of the bubble
			synctest.Wait()
			if _, err := handshake(t, s.Config(), by.client("coder.example.com")); err != nil {
				t.Errorf("%s: %v", step, err)
			}
		}
		check("before", a)
		_, _, newCert, newKey := issue(t, "coder.example.com", b, false)
		put(t, dir, "coder.example.com.pem", newCert)
		check("the key is still the earlier one", a)
		if n := strings.Count(log.String(), "keeping the earlier ones"); n != 1 {
			t.Errorf("the mistake was logged %d times, want once:\n%s", n, log.String())
		}
		put(t, dir, "coder.example.com.key", newKey)
		check("both are new", b)
		if err := os.Remove(cert); err != nil {
			t.Fatal(err)
		}
		check("the certificate is missing", b)
		put(t, dir, "coder.example.com.pem", newCert)
		check("the certificate is back", b)
		cancel()
		<-done
	})
}

func TestClientCertificates(t *testing.T) {
	t.Parallel()
	a, strangers, dir := newAuthority(t), newAuthority(t), t.TempDir()
	cert, key := a.pair(t, dir, "coder.example.com")
	ca := put(t, dir, "ca.pem", a.pem)
	s, err := certs.New(certs.Options{
		Logger: slog.New(slog.DiscardHandler), CertFiles: []string{cert}, KeyFiles: []string{key}, ClientAuth: "require-and-verify", ClientCAFile: ca,
	})
	if err != nil {
		t.Fatal(err)
	}
	client := func(by *authority) *tls.Config {
		_, _, certPEM, keyPEM := issue(t, "laptop", by, false)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		config := a.client("coder.example.com")
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		return config
	}
	if _, err := handshake(t, s.Config(), client(a)); err != nil {
		t.Errorf("the owner's certificate is refused: %v", err)
	}
	if _, err := handshake(t, s.Config(), client(strangers)); err == nil {
		t.Error("a stranger's certificate is accepted")
	}
	if _, err := handshake(t, s.Config(), a.client("coder.example.com")); err == nil {
		t.Error("a client without a certificate is accepted")
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	cert, key := a.pair(t, dir, "one.example.com")
	_, other := a.pair(t, dir, "two.example.com")
	garbage := put(t, dir, "garbage.pem", []byte("garbage"))
	for want, opts := range map[string]certs.Options{
		"cannot use the certificate":             {CertFiles: []string{cert}, KeyFiles: []string{other}},
		"garbage.pem with the key":               {CertFiles: []string{garbage}, KeyFiles: []string{key}},
		"no such file":                           {CertFiles: []string{dir + "/none"}, KeyFiles: []string{key}},
		"2 --tls-cert-file need as many":         {CertFiles: []string{cert, cert}, KeyFiles: []string{key}},
		"HTTPS requires":                         {},
		"--tls-min-version cannot be \"tls10\"":  {CertFiles: []string{cert}, KeyFiles: []string{key}, MinVersion: "tls10"},
		"--tls-client-auth cannot be \"maybe\"":  {CertFiles: []string{cert}, KeyFiles: []string{key}, ClientAuth: "maybe"},
		"need --tls-client-ca-file":              {CertFiles: []string{cert}, KeyFiles: []string{key}, ClientAuth: "require-and-verify"},
		"and the others cannot be combined":      {CertFiles: []string{cert}, KeyFiles: []string{key}, ClientCAFile: cert},
		"contains no certificate":                {CertFiles: []string{cert}, KeyFiles: []string{key}, ClientAuth: "require-and-verify", ClientCAFile: garbage},
		"not a secure cipher suite":              {CertFiles: []string{cert}, KeyFiles: []string{key}, Ciphers: []string{"TLS_RSA_WITH_RC4_128_SHA"}},
		"cannot be combined with --tls-min-vers": {CertFiles: []string{cert}, KeyFiles: []string{key}, MinVersion: "tls13", Ciphers: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}},
	} {
		opts.Logger = slog.New(slog.DiscardHandler)
		if _, err := certs.New(opts); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
