package main

import (
	"log/slog"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/certs/acme"
)

// tlsOptions are the flags of the server for HTTPS.
type tlsOptions struct {
	daemon.TLS
	acme     acme.Options
	enable   bool
	redirect bool
	// hstsSeconds and hstsOptions are as in httpapi.ParseTransport.
	hstsSeconds int
	hstsOptions []string
}

// defaultTLSAddress is where --tls-enable serves without --tls-address.
const defaultTLSAddress = "127.0.0.1:3443"

func (o *tlsOptions) flags(f *pflag.FlagSet) {
	o.TLS.Flags(f)
	f.BoolVar(&o.enable, "tls-enable", false,
		"serve HTTPS; implied by --tls-address (default address "+defaultTLSAddress+")")
	f.StringVar(&o.Certs.MinVersion, "tls-min-version", "tls12", "minimum TLS version: tls12 or tls13")
	f.StringSliceVar(&o.Certs.Ciphers, "tls-ciphers", nil,
		"cipher suites for TLS 1.2, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 (default Go's secure ones)")
	f.StringVar(&o.Certs.ClientAuth, "tls-client-auth", "none",
		"whether clients need certificates: none, request, require-any, verify-if-given or require-and-verify")
	f.StringVar(&o.Certs.ClientCAFile, "tls-client-ca-file", "",
		"PEM file with the authorities that may issue clients' certificates")
	f.StringSliceVar(&o.acme.Domains, "tls-acme-domain", nil, "domain name to get a certificate for with ACME; may be repeated; port 80 or 443 of the name must lead to the server; accepts the terms of the certificate authority")
	f.StringVar(&o.acme.Email, "tls-acme-email", "", "email address that the certificate authority may write to")
	f.StringVar(&o.acme.DirectoryURL, "tls-acme-directory-url", "",
		"ACME directory of the certificate authority (default Let's Encrypt)")
	f.StringVar(&o.acme.CAFile, "tls-acme-ca-file", "",
		"PEM file with the authorities to trust for --tls-acme-directory-url (default the system's)")
	f.BoolVar(&o.redirect, "redirect-to-access-url", false,
		"redirect browsers that open a page at another address to the access URL")
	f.IntVar(&o.hstsSeconds, "strict-transport-security", 0,
		"number of seconds for which browsers use HTTPS only, as Strict-Transport-Security; 0 for no such header")
	f.StringSliceVar(&o.hstsOptions, "strict-transport-security-options", nil,
		"options of that header: includeSubDomains, preload")
}

func (o *tlsOptions) enabled() bool { return o.enable || o.Enabled() || len(o.acme.Domains) > 0 }

func (o *tlsOptions) hstsAge() time.Duration { return time.Duration(o.hstsSeconds) * time.Second }

// listen opens the HTTPS address. The source is nil without ACME.
func (o *tlsOptions) listen(log *slog.Logger) (net.Listener, *certs.Store, *acme.Source, error) {
	source, err := acme.New(o.acme, log)
	if err != nil {
		return nil, nil, nil, err
	}
	options := o.TLS
	if source != nil {
		options.Certs.Source = source
	}
	if options.Address == "" && o.enable {
		options.Address = defaultTLSAddress
	}
	listener, store, err := options.Listen(log)
	return listener, store, source, err
}
