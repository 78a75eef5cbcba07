// Package acme gets certificates automatically (RFC 8555). It must not know where they are kept, nor what is served. It
// is apart from package certs because the slim binary, which runs region proxies, does not contain it.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
	"golang.org/x/net/idna"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Options say where to get certificates. The challenges are http-01 at port 80 and tls-alpn-01 at port 443: one of
// these ports must lead to a server of the deployment, whichever it is.
type Options struct {
	// Domains are the names to get certificates for; none turns ACME off. Wildcards need a challenge over DNS, which
	// autocert does not support.
	Domains []string
	// Email is where the certificate authority sends warnings; may be empty.
	Email string
	// DirectoryURL is the authority's. Empty means Let's Encrypt.
	DirectoryURL string
	// CAFile is a PEM file with the authorities to trust for DirectoryURL itself. Empty means the system's.
	CAFile string
}

// Cache keeps certificates, their keys, the account and pending challenges. All servers of a deployment must share it.
// Get returns ErrCacheMiss for what it does not have.
type Cache = autocert.Cache

// ErrCacheMiss is what Cache.Get returns for what it does not have.
var ErrCacheMiss = autocert.ErrCacheMiss

// Source provides ACME's certificates to a certs.Store.
type Source struct {
	log     *slog.Logger
	domains []string // in the form that certificates contain
	manager *autocert.Manager
	failed  atomic.Int64 // Unix time of the last failure that was logged
}

// New returns nil without domains. The caller must set a cache.
func New(o Options, log *slog.Logger) (*Source, error) {
	if len(o.Domains) == 0 {
		if o.Email != "" || o.DirectoryURL != "" || o.CAFile != "" {
			return nil, fault.New(fault.Invalid, "the other --tls-acme flags require --tls-acme-domain")
		}
		return nil, nil
	}
	domains := make([]string, 0, len(o.Domains))
	for _, given := range o.Domains {
		if strings.HasPrefix(given, "*.") {
			return nil, fault.New(fault.Invalid,
				"--tls-acme-domain cannot be %q: ACME over HTTP issues no wildcard certificates; provide them with "+
					"--tls-cert-file", given)
		}
		domain, err := idna.Lookup.ToASCII(given)
		if err != nil || !strings.Contains(strings.Trim(domain, "."), ".") || net.ParseIP(domain) != nil {
			return nil, fault.New(fault.Invalid,
				"--tls-acme-domain cannot be %q: it must be a domain name such as coder.example.com", given)
		}
		domains = append(domains, strings.TrimSuffix(domain, "."))
	}
	directory := o.DirectoryURL
	if directory == "" {
		directory = autocert.DefaultACMEDirectory
	}
	if u, err := url.Parse(directory); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fault.New(fault.Invalid, "--tls-acme-directory-url %q must start with https://", directory)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fault.New(fault.Invalid, "--tls-acme-ca-file cannot be read: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fault.New(fault.Invalid, "--tls-acme-ca-file %s contains no certificate", o.CAFile)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	return &Source{log: log, domains: domains, manager: &autocert.Manager{
		Prompt: autocert.AcceptTOS, HostPolicy: autocert.HostWhitelist(domains...), Email: o.Email,
		Client: &acme.Client{DirectoryURL: directory, HTTPClient: &http.Client{Transport: transport,
			Timeout: time.Minute}, UserAgent: "codermesh"},
	}}, nil
}

// UseCache sets where ACME's data is kept. It must be called before the first connection is accepted.
func (s *Source) UseCache(c Cache) {
	s.manager.Cache = c
}

// Challenges answers http-01 challenges, and passes every other request to next.
func (s *Source) Challenges(next http.Handler) http.Handler {
	answers := s.manager.HTTPHandler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.Host); err == nil &&
			strings.HasPrefix(r.URL.Path, "/.well-known/acme-challenge/") {
			r = r.Clone(r.Context()) // a proxy may keep its own port in the header
			r.Host = host
		}
		answers.ServeHTTP(w, r)
	})
}

// validates reports whether the certificate authority opens this connection, to see the answer to a tls-alpn-01
// challenge (RFC 8737).
func validates(hello *tls.ClientHelloInfo) bool {
	return slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto})
}

// Validation implements certs.Source. Connections that the authority opens carry no requests: the HTTP server closes
// connections of protocols that it does not know. The authority needs no client certificate.
func (s *Source) Validation(hello *tls.ClientHelloInfo) *tls.Config {
	if !validates(hello) {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{acme.ALPNProto},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !s.Has(hello.ServerName) {
				return nil, errors.New("ACME does not serve this name")
			}
			return s.manager.GetCertificate(hello)
		},
	}
}

// Has reports whether the certificate for a name comes from ACME.
func (s *Source) Has(name string) bool {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	return err == nil && slices.Contains(s.domains, ascii)
}

// GetCertificate implements certs.Source. It blocks until the authority has issued the
// certificate, five minutes at most.
func (s *Source) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if !s.Has(hello.ServerName) {
		return nil, nil
	}
	certificate, err := s.manager.GetCertificate(hello)
	if now, last := time.Now().Unix(), s.failed.Load(); err != nil && now-last >= 60 &&
		s.failed.CompareAndSwap(last, now) {
		// once a minute, however many visitors
		s.log.Error("cannot get a certificate with ACME", "addr", hello.ServerName, "err", err)
	}
	return certificate, err
}

// Obtain gets the certificates that are missing, so that no visitor waits for them, and starts their renewal. It logs
// failures; visitors cause further attempts. Once ctx ends it returns; an order that is under way then ends with the
// process.
func (s *Source) Obtain(ctx context.Context) {
	for _, domain := range s.domains {
		obtained := make(chan error, 1)
		go func() {
			_, err := s.GetCertificate(&tls.ClientHelloInfo{
				ServerName: domain, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
				SupportedCurves: []tls.CurveID{tls.CurveP256},
				// autocert's sign of a client that knows ECDSA
				CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
			})
			obtained <- err
		}()
		select {
		case <-ctx.Done():
			return
		case err := <-obtained:
			if err == nil {
				s.log.Info("certificate is ready", "addr", domain)
			}
		}
	}
}
