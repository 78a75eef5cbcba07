package main

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/coderd/certs"
	"github.com/codermesh/codermesh/internal/fault"
)

// tlsOptions are the flags of daemons for HTTPS.
type tlsOptions struct {
	enable   bool
	address  string
	certs    certs.Options
	redirect bool
	// hstsSeconds and hstsOptions are as in httpapi.ParseTransport.
	hstsSeconds int
	hstsOptions []string
}

// defaultTLSAddress is where --tls-enable serves without --tls-address.
const defaultTLSAddress = "127.0.0.1:3443"

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	o.listenFlags(f)
	f.BoolVar(&o.enable, "tls-enable", false, "serve HTTPS; implied by --tls-address (default address "+defaultTLSAddress+")")
	f.StringVar(&o.certs.MinVersion, "tls-min-version", "tls12", "minimum TLS version: tls12 or tls13")
	f.StringSliceVar(&o.certs.Ciphers, "tls-ciphers", nil, "cipher suites for TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 (default Go's secure ones)")
	f.StringVar(&o.certs.ClientAuth, "tls-client-auth", "none", "whether clients need certificates: none, request, require-any, verify-if-given or require-and-verify")
	f.StringVar(&o.certs.ClientCAFile, "tls-client-ca-file", "", "PEM file with the authorities that may issue clients' certificates")
	f.StringSliceVar(&o.certs.ACME.Domains, "tls-acme-domain", nil, "domain name to get a certificate for with ACME; may be repeated; port 80 or 443 of the name must lead to the server; accepts the terms of the certificate authority")
	f.StringVar(&o.certs.ACME.Email, "tls-acme-email", "", "email address that the certificate authority may write to")
	f.StringVar(&o.certs.ACME.DirectoryURL, "tls-acme-directory-url", "", "ACME directory of the certificate authority (default Let's Encrypt)")
	f.StringVar(&o.certs.ACME.CAFile, "tls-acme-ca-file", "", "PEM file with the authorities to trust for --tls-acme-directory-url (default the system's)")
	f.BoolVar(&o.redirect, "redirect-to-access-url", false, "redirect browsers that open a page at another address to the access URL")
	f.IntVar(&o.hstsSeconds, "strict-transport-security", 0, "number of seconds for which browsers use HTTPS only, as Strict-Transport-Security; 0 for no such header")
	f.StringSliceVar(&o.hstsOptions, "strict-transport-security-options", nil, "options of that header: includeSubDomains, preload")
}

// listenFlags are those that every daemon with HTTPS has.
func (o *tlsOptions) listenFlags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "tls-address", "", "address to serve HTTPS on; requires certificates")
	f.StringSliceVar(&o.certs.CertFiles, "tls-cert-file", nil, "PEM file with a certificate and its chain; may be repeated, clients get the one for the name that they ask for; changed files are loaded without a restart")
	f.StringSliceVar(&o.certs.KeyFiles, "tls-key-file", nil, "PEM file with the key of a certificate; may be repeated, in the order of --tls-cert-file")
}

func (o *tlsOptions) enabled() bool {
	return o.enable || o.address != "" || len(o.certs.CertFiles) > 0 || len(o.certs.KeyFiles) > 0 || len(o.certs.ACME.Domains) > 0
}

func (o *tlsOptions) hstsAge() time.Duration { return time.Duration(o.hstsSeconds) * time.Second }

// listen opens the HTTPS address.
func (o *tlsOptions) listen(log *slog.Logger) (net.Listener, *certs.Store, error) {
	address := o.address
	if address == "" && o.enable {
		address = defaultTLSAddress
	}
	if address == "" {
		return nil, nil, fault.New(fault.Invalid, "HTTPS requires --tls-address together with certificates")
	}
	options := o.certs
	options.Logger = log
	store, err := certs.New(options)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, nil, cannotListen("--tls-address", address, err)
	}
	return tls.NewListener(listener, store.Config()), store, nil
}
