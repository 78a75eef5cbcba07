package certs_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/coderd/certs"
	"github.com/codermesh/codermesh/coderd/certs/pebbletest"
	"github.com/codermesh/codermesh/coderd/database"
	"github.com/codermesh/codermesh/coderd/database/dbtest"
	"github.com/codermesh/codermesh/coderd/states"
	"github.com/codermesh/codermesh/internal/fault"
)

func keyring(t *testing.T, n byte) *states.Keyring {
	t.Helper()
	ring, err := states.Parse(base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{n}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return ring
}

// stored returns ACME's rows but those of challenges, which autocert deletes in the background.
func stored(t *testing.T, db *database.DB) map[string]string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), "SELECT key, value FROM settings WHERE starts_with(key, 'acme:') AND NOT key LIKE '%+token' AND NOT key LIKE '%+http-01'")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for rows.Next() {
		var key string
		var value []byte
		if err := rows.Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		all[key] = string(value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestACME: a certificate authority issues a certificate by each of the two challenges; another server of the deployment answers the
// challenges of the first, and then serves the same certificate without asking the authority.
func TestACME(t *testing.T) {
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			db, keys := dbtest.New(t), keyring(t, 1)
			plain, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			encrypted, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			httpPort, tlsPort := plain.Addr().(*net.TCPAddr).Port, encrypted.Addr().(*net.TCPAddr).Port
			if challenge == "http-01" {
				tlsPort = 1 // closed
			} else {
				httpPort = 1
			}
			authority := pebbletest.Start(t, httpPort, tlsPort)
			people := newAuthority(t)
			clients := put(t, t.TempDir(), "clients.pem", people.pem)
			newStore := func() *certs.Store {
				s, err := certs.New(certs.Options{
					Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
					ACME:   certs.ACME{Domains: []string{"Coder.example.com"}, DirectoryURL: authority.DirectoryURL, CAFile: authority.CAFile, Email: "ada@example.com"},
					// The authority has no client certificate.
					ClientAuth: "require-and-verify", ClientCAFile: clients,
				})
				if err != nil {
					t.Fatal(err)
				}
				s.UseCache(certs.SealedCache{DB: db, Keys: keys, Logger: slog.New(slog.DiscardHandler)})
				return s
			}
			// The other server has the ports that the authority asks.
			asker, other := newStore(), newStore()
			page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
			asker.Challenges(page)
			web := &http.Server{Handler: other.Challenges(page)}
			secure := &http.Server{Handler: page, ErrorLog: log.New(io.Discard, "", 0)}
			var serving sync.WaitGroup
			serving.Go(func() { _ = web.Serve(plain) })
			serving.Go(func() { _ = secure.Serve(tls.NewListener(encrypted, other.Config())) })
			defer serving.Wait()
			defer web.Close()
			defer secure.Close()

			asker.Obtain(t.Context())
			issued := stored(t, db)
			if len(issued) == 0 {
				t.Fatal("no certificate is stored")
			}
			visitor := &tls.Config{RootCAs: authority.Roots, ServerName: "coder.example.com"}
			if _, err := handshake(t, other.Config(), visitor); err == nil {
				t.Error("a visitor without a client certificate is admitted")
			}
			_, _, certPEM, keyPEM := issue(t, "ada", people, false)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			visitor.Certificates = []tls.Certificate{pair}
			for i, s := range []*certs.Store{asker, other} {
				if got, err := handshake(t, s.Config(), visitor); err != nil || got != "coder.example.com" {
					t.Errorf("server %d: got %q, %v", i, got, err)
				}
			}
			if diff := cmp.Diff(issued, stored(t, db)); diff != "" {
				t.Errorf("the other server asked the authority, too: %s", diff)
			}
			for name, value := range issued {
				if strings.Contains(value, "PRIVATE KEY") {
					t.Errorf("%s is stored without being encrypted", name)
				}
			}
			for _, proto := range []string{"http/1.1", "acme-tls/1"} {
				stranger := &tls.Config{InsecureSkipVerify: true, ServerName: "evil.example.com", NextProtos: []string{proto}}
				if got, err := handshake(t, other.Config(), stranger); err == nil {
					t.Errorf("%s: a name that is not ours gets the certificate of %q", proto, got)
				}
			}
			resp, err := http.Get("http://" + plain.Addr().String() + "/templates")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != http.StatusTeapot {
				t.Errorf("a page over plain HTTP: got %d", resp.StatusCode)
			}
		})
	}
}

func TestACMEMistakes(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]certs.ACME{
		"wildcard":                   {Domains: []string{"*.example.com"}},
		"must be a domain name such": {Domains: []string{"127.0.0.1"}},
		"must be a domain name":      {Domains: []string{"https://coder.example.com"}},
		"must start with https://":   {Domains: []string{"coder.example.com"}, DirectoryURL: "http://x"},
		"cannot be read":             {Domains: []string{"coder.example.com"}, CAFile: "/no/such"},
		"require --tls-acme-domain":  {Email: "a@example.com"},
	} {
		a, dir := newAuthority(t), t.TempDir()
		cert, key := a.pair(t, dir, "one.example.com")
		_, err := certs.New(certs.Options{Logger: slog.New(slog.DiscardHandler), CertFiles: []string{cert}, KeyFiles: []string{key}, ACME: o})
		if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestSealedCache: data that was encrypted with a lost key, or for another name, counts as missing.
func TestSealedCache(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	c := certs.SealedCache{DB: db, Keys: keyring(t, 1), Logger: slog.New(slog.DiscardHandler)}
	if _, err := c.Get(t.Context(), "a"); !errors.Is(err, certs.ErrCacheMiss) {
		t.Errorf("got %v", err)
	}
	for _, text := range []string{"first", "key"} {
		if err := c.Put(t.Context(), "a", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), "a"); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
	if _, err := (certs.SealedCache{DB: db, Keys: keyring(t, 2), Logger: c.Logger}).Get(t.Context(), "a"); !errors.Is(err, certs.ErrCacheMiss) {
		t.Errorf("with another key: got %v", err)
	}
	if _, err := db.Pool.Exec(t.Context(), "UPDATE settings SET key = 'acme:b' WHERE key = 'acme:a'"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), "b"); !errors.Is(err, certs.ErrCacheMiss) {
		t.Errorf("another name's data: got %v", err)
	}
	if err := c.Delete(t.Context(), "b"); err != nil || len(stored(t, db)) != 0 {
		t.Errorf("got %v, %q", err, stored(t, db))
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }
