package daemon

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// TLS are the flags of daemons for HTTPS. A daemon may have flags of its own for the other options of Certs.
type TLS struct {
	Address string
	Certs   certs.Options
}

// Flags declares the flags that every daemon with HTTPS has.
func (o *TLS) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Address, "tls-address", "", "address to serve HTTPS on; requires certificates")
	f.StringSliceVar(&o.Certs.CertFiles, "tls-cert-file", nil, "PEM file with a certificate and its chain; may be repeated, clients get the one for the name that they ask for; changed files are loaded without a restart")
	f.StringSliceVar(&o.Certs.KeyFiles, "tls-key-file", nil,
		"PEM file with the key of a certificate; may be repeated, in the order of --tls-cert-file")
}

// Enabled reports whether a flag requests HTTPS.
func (o *TLS) Enabled() bool {
	return o.Address != "" || len(o.Certs.CertFiles) > 0 || len(o.Certs.KeyFiles) > 0
}

// Listen opens the HTTPS address. The caller must run the store, which reads changed files again.
func (o *TLS) Listen(log *slog.Logger) (net.Listener, *certs.Store, error) {
	if o.Address == "" {
		return nil, nil, fault.New(fault.Invalid, "HTTPS requires --tls-address together with certificates")
	}
	options := o.Certs
	options.Logger = log
	store, err := certs.New(options)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, nil, CannotListen("--tls-address", o.Address, err)
	}
	return tls.NewListener(listener, store.Config()), store, nil
}

// CannotListen returns the fault for an address that cannot be opened. flag names the option with the address.
func CannotListen(flag, addr string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault.New(fault.Unavailable, "the address %s is used by another program: %w", addr, err).
			WithDetail("Stop that program, or choose another address with %s.", flag)
	}
	return fault.New(fault.Unavailable, "cannot listen on %s: %w", addr, err).
		WithDetail("Choose another address with %s.", flag)
}
