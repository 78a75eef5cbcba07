package certs_test

import (
	"crypto/tls"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/acme/autocert"

	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/certs/acme"
	"github.com/codermesh/codermesh/v2/internal/certs/pebbletest"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// stored returns the files of ACME's data but those of challenges, which autocert deletes in the background.
func stored(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, file := range files {
		if name := file.Name(); !strings.HasSuffix(name, "+token") && !strings.HasSuffix(name, "+http-01") {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

// acmeStore is what a server uses that gets its certificate from an authority, keeps it in a folder, and asks visitors for certificates.
func acmeStore(t *testing.T, dir, clients string, authority pebbletest.Authority) (*acme.Source, *certs.Store) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	source, err := acme.New(acme.Options{Domains: []string{"Coder.example.com"}, DirectoryURL: authority.DirectoryURL, CAFile: authority.CAFile, Email: "ada@example.com"}, log)
	if err != nil {
		t.Fatal(err)
	}
	source.UseCache(autocert.DirCache(dir))
	s, err := certs.New(certs.Options{
		Logger: log, Source: source,
		// The authority has no client certificate.
		ClientAuth: "require-and-verify", ClientCAFile: clients,
	})
	if err != nil {
		t.Fatal(err)
	}
	return source, s
}

// TestACME: a certificate authority issues a certificate by each of the two challenges; another server of the deployment answers the
// challenges of the first, and then serves the same certificate without asking the authority.
func TestACME(t *testing.T) {
	for _, challenge := range []string{"http-01", "tls-alpn-01"} {
		t.Run(challenge, func(t *testing.T) {
			dir := t.TempDir()
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
			newStore := func() (*acme.Source, *certs.Store) { return acmeStore(t, dir, clients, authority) }
			// The other server has the ports that the authority asks.
			asker, askerStore := newStore()
			other, otherStore := newStore()
			page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
			asker.Challenges(page)
			web := &http.Server{Handler: other.Challenges(page)}
			secure := &http.Server{Handler: page, ErrorLog: log.New(io.Discard, "", 0)}
			var serving sync.WaitGroup
			serving.Go(func() { _ = web.Serve(plain) })
			serving.Go(func() { _ = secure.Serve(tls.NewListener(encrypted, otherStore.Config())) })
			defer serving.Wait()
			defer web.Close()
			defer secure.Close()

			asker.Obtain(t.Context())
			issued := stored(t, dir)
			if len(issued) == 0 {
				t.Fatal("no certificate is stored")
			}
			visitor := &tls.Config{RootCAs: authority.Roots, ServerName: "coder.example.com"}
			if _, err := handshake(t, otherStore.Config(), visitor); err == nil {
				t.Error("a visitor without a client certificate is admitted")
			}
			_, _, certPEM, keyPEM := issue(t, "ada", people, false)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			visitor.Certificates = []tls.Certificate{pair}
			for i, s := range []*certs.Store{askerStore, otherStore} {
				if got, err := handshake(t, s.Config(), visitor); err != nil || got != "coder.example.com" {
					t.Errorf("server %d: got %q, %v", i, got, err)
				}
			}
			if diff := cmp.Diff(issued, stored(t, dir)); diff != "" {
				t.Errorf("the other server asked the authority, too: %s", diff)
			}
			for _, proto := range []string{"http/1.1", "acme-tls/1"} {
				stranger := &tls.Config{InsecureSkipVerify: true, ServerName: "evil.example.com", NextProtos: []string{proto}}
				if got, err := handshake(t, otherStore.Config(), stranger); err == nil {
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
	for want, o := range map[string]acme.Options{
		"wildcard":                   {Domains: []string{"*.example.com"}},
		"must be a domain name such": {Domains: []string{"127.0.0.1"}},
		"must be a domain name":      {Domains: []string{"https://coder.example.com"}},
		"must start with https://":   {Domains: []string{"coder.example.com"}, DirectoryURL: "http://x"},
		"cannot be read":             {Domains: []string{"coder.example.com"}, CAFile: "/no/such"},
		"require --tls-acme-domain":  {Email: "a@example.com"},
	} {
		if _, err := acme.New(o, slog.New(slog.DiscardHandler)); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }
