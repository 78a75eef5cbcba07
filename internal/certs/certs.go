// Package certs provides what the HTTPS address needs: certificates from files or another source, chosen by the name
// that a client asks for, and the authorities that may issue clients' certificates. It reads the files again when they
// change, without a restart; if they cannot be used, the earlier ones stay in use.
//
// It owns the TLS settings of servers and region proxies. It must not know what is served.
package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// interval is how often Run looks whether files have changed.
const interval = 10 * time.Second

// Options are what a Store is made of.
type Options struct {
	Logger *slog.Logger
	// CertFiles and KeyFiles are PEM files: certificates with their chains, and the key of each. A client that asks for
	// an unknown name, or for none, gets the first.
	CertFiles, KeyFiles []string
	// MinVersion is "tls12", "tls13" or empty, which means tls12.
	MinVersion string
	// Ciphers are names of cipher suites for TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256. None: Go's.
	Ciphers []string
	// ClientAuth says whether clients need certificates: none, request, require-any, verify-if-given,
	// require-and-verify. Empty means none.
	ClientAuth string
	// ClientCAFile has the authorities that may issue clients' certificates.
	ClientCAFile string
	// Source provides further certificates. Nil provides none.
	Source Source
}

// Source provides certificates that are in no file, as package acme does.
type Source interface {
	// GetCertificate returns the certificate for the name that a visitor asks for, and nil for a name that the source
	// does not have.
	GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error)
	// Validation returns the configuration of a connection with which a certificate authority validates a name, and nil
	// for other connections.
	Validation(hello *tls.ClientHelloInfo) *tls.Config
}

// Store holds the certificates that are in use.
type Store struct {
	opts    Options
	base    *tls.Config
	current atomic.Pointer[tls.Config]
	files   [][]byte // contents that were read last, used by New and Run only
}

var versions = map[string]uint16{"": tls.VersionTLS12, "tls12": tls.VersionTLS12, "tls13": tls.VersionTLS13}

var clientAuths = map[string]tls.ClientAuthType{
	"": tls.NoClientCert, "none": tls.NoClientCert, "request": tls.RequestClientCert, "require-any": tls.RequireAnyClientCert,
	"verify-if-given": tls.VerifyClientCertIfGiven, "require-and-verify": tls.RequireAndVerifyClientCert,
}

// New reads the files. It returns the fault Invalid for settings or files that cannot be used.
func New(opts Options) (*Store, error) {
	s := &Store{opts: opts}
	var err error
	if s.base, err = opts.base(); err != nil {
		return nil, err
	}
	if opts.Source != nil {
		s.base.GetCertificate = opts.Source.GetCertificate
	}
	if s.files, err = s.read(); err != nil {
		return nil, err
	}
	config, err := s.build(s.files)
	if err != nil {
		return nil, err
	}
	s.current.Store(config)
	return s, nil
}

// base returns the settings that no file contains.
func (o Options) base() (*tls.Config, error) {
	version, ok := versions[o.MinVersion]
	if !ok {
		return nil, fault.New(fault.Invalid, "--tls-min-version cannot be %q: it must be tls12 or tls13", o.MinVersion)
	}
	auth, ok := clientAuths[o.ClientAuth]
	if !ok {
		return nil, fault.New(fault.Invalid,
			"--tls-client-auth cannot be %q: it must be none, request, require-any, verify-if-given or "+
				"require-and-verify", o.ClientAuth)
	}
	if verifies := auth >= tls.VerifyClientCertIfGiven; verifies != (o.ClientCAFile != "") {
		return nil, fault.New(fault.Invalid,
			"--tls-client-auth verify-if-given and require-and-verify need --tls-client-ca-file, and the others "+
				"cannot be combined with it")
	}
	if len(o.CertFiles) != len(o.KeyFiles) {
		return nil, fault.New(fault.Invalid, "%d --tls-cert-file need as many --tls-key-file, not %d", len(o.CertFiles),
			len(o.KeyFiles))
	}
	if len(o.CertFiles) == 0 && o.Source == nil {
		return nil, fault.New(fault.Invalid,
			"HTTPS requires certificates: set --tls-cert-file and --tls-key-file; a server also accepts "+
				"--tls-acme-domain")
	}
	ciphers, err := parseCiphers(o.Ciphers, version)
	if err != nil {
		return nil, err
	}
	// HTTP/1.1 only, since the relay and websockets upgrade connections, which HTTP/2 does not support.
	return &tls.Config{MinVersion: version, CipherSuites: ciphers, ClientAuth: auth,
		NextProtos: []string{"http/1.1"}}, nil
}

func parseCiphers(names []string, version uint16) (ids []uint16, err error) {
	if len(names) > 0 && version >= tls.VersionTLS13 {
		return nil, fault.New(fault.Invalid,
			"--tls-ciphers cannot be combined with --tls-min-version tls13, which has a fixed set of ciphers")
	}
	for _, name := range names {
		at := slices.IndexFunc(tls.CipherSuites(), func(c *tls.CipherSuite) bool {
			return c.Name == name && slices.Contains(c.SupportedVersions, tls.VersionTLS12)
		})
		if at < 0 {
			return nil, fault.New(fault.Invalid,
				"--tls-ciphers cannot contain %q: it is not a secure cipher suite of TLS 1.2", name)
		}
		ids = append(ids, tls.CipherSuites()[at].ID)
	}
	return ids, nil
}

// read returns the contents of all files.
func (s *Store) read() ([][]byte, error) {
	var all [][]byte
	for _, name := range s.names() {
		read := os.ReadFile
		if slices.Contains(s.opts.KeyFiles, name) {
			read = secret.ReadFile
		}
		text, err := read(name)
		if fault.As(err) != nil {
			return nil, err
		}
		if err != nil {
			return nil, fault.New(fault.Invalid, "cannot read a file for HTTPS: %w", err).
				WithDetail("Name a file that the server's account can read.")
		}
		all = append(all, text)
	}
	return all, nil
}

func (s *Store) names() []string {
	names := slices.Concat(s.opts.CertFiles, s.opts.KeyFiles)
	if s.opts.ClientCAFile != "" {
		names = append(names, s.opts.ClientCAFile)
	}
	return names
}

// build makes a configuration from the contents of the files.
func (s *Store) build(files [][]byte) (*tls.Config, error) {
	config := s.base.Clone()
	n := len(s.opts.CertFiles)
	for i, name := range s.opts.CertFiles {
		pair, err := tls.X509KeyPair(files[i], files[n+i])
		if err != nil {
			return nil, fault.New(fault.Invalid, "cannot use the certificate %s with the key %s: %w", name,
				s.opts.KeyFiles[i], err)
		}
		if now := time.Now(); now.After(pair.Leaf.NotAfter) {
			s.opts.Logger.Warn("certificate has expired", "path", name, "reason",
				"expired on "+pair.Leaf.NotAfter.Format(time.RFC3339))
		}
		config.Certificates = append(config.Certificates, pair)
	}
	if s.opts.ClientCAFile != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(files[2*n]) {
			return nil, fault.New(fault.Invalid, "--tls-client-ca-file %s contains no certificate", s.opts.ClientCAFile)
		}
	}
	return config, nil
}

// Config returns the configuration of a listener. It always uses the latest files.
func (s *Store) Config() *tls.Config {
	return &tls.Config{
		MinVersion: s.base.MinVersion,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			if s.opts.Source != nil {
				if config := s.opts.Source.Validation(hello); config != nil {
					return config, nil
				}
			}
			return s.current.Load(), nil
		},
	}
}

// Has reports whether one of the files' certificates is for a name.
func (s *Store) Has(name string) bool {
	return slices.ContainsFunc(s.current.Load().Certificates,
		func(pair tls.Certificate) bool { return pair.Leaf.VerifyHostname(name) == nil })
}

// Run reads the files again when they change. It returns when ctx ends.
func (s *Store) Run(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	last := "" // the reason that was logged
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		changed, err := s.Reload()
		switch {
		case err == nil && changed:
			s.opts.Logger.Info("loaded changed certificates", "path", strings.Join(s.names(), " "))
			last = ""
		case err == nil:
			last = ""
		case err.Error() != last:
			s.opts.Logger.Error("cannot use changed certificates, keeping the earlier ones", "err", err)
			last = err.Error()
		}
	}
}

// Reload reads the files and reports whether they have changed since they were last used. If they cannot be used, those
// in use stay. It must not be called while Run runs.
func (s *Store) Reload() (changed bool, err error) {
	files, err := s.read()
	if err != nil {
		return false, err
	}
	if slices.EqualFunc(files, s.files, bytes.Equal) {
		return false, nil
	}
	config, err := s.build(files)
	if err != nil {
		return false, fmt.Errorf("reload: %w", err)
	}
	s.files = files
	s.current.Store(config)
	return true, nil
}
