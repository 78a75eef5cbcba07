// Package pebbletest runs a certificate authority for tests: pebble, which Let's Encrypt keeps for testing ACME
// clients. It finds every name at 127.0.0.1. It must not know the product.
package pebbletest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// Authority issues certificates.
type Authority struct {
	DirectoryURL string
	// CAFile has the certificate of DirectoryURL.
	CAFile string
	// Roots verify the certificates that the authority issues.
	Roots *x509.CertPool
}

// Start starts an authority until the test ends. It sends challenges to the given ports of 127.0.0.1. The test cannot
// be parallel, since pebble reads environment variables.
func Start(t *testing.T, httpPort, tlsPort int) Authority {
	t.Helper()
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	authority := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "test"}})
	validator := va.New(quiet, httpPort, tlsPort, true, resolver(t), store)
	front := wfe.New(quiet, store, validator, authority, []string{"pebble.example.com"}, true, false, 0, 0)
	srv := httptest.NewTLSServer(front.Handler())
	t.Cleanup(srv.Close)
	root, err := x509.ParseCertificate(authority.GetRootCert(0).DER)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "directory.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		0o600); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(root)
	return Authority{DirectoryURL: srv.URL + wfe.DirectoryPath, CAFile: file, Roots: roots}
}

// resolver answers every question for an IPv4 address with 127.0.0.1. It serves TCP, which is what the authority asks
// over.
func resolver(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &dns.Server{Listener: listener, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, question *dns.Msg) {
		answer := new(dns.Msg).SetReply(question)
		for _, q := range question.Question {
			if q.Qtype == dns.TypeA {
				header := dns.RR_Header{Name: q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}
				answer.Answer = append(answer.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
			}
		}
		_ = w.WriteMsg(answer)
	})}
	var serving sync.WaitGroup
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	serving.Go(func() { _ = server.ActivateAndServe() })
	<-started
	t.Cleanup(func() { _ = server.Shutdown(); serving.Wait() })
	return listener.Addr().String()
}
