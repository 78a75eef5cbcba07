package main

import (
	"crypto/tls"
	"net"

	"github.com/codermesh/codermesh/internal/fault"
)

// listenTLS opens the HTTPS address. It offers HTTP/1.1 only, since the relay and websockets upgrade connections, which HTTP/2 does not
// support.
func listenTLS(opts serverOptions) (net.Listener, error) {
	if opts.tlsAddress == "" || opts.tlsCert == "" || opts.tlsKey == "" {
		return nil, fault.New(fault.Invalid, "HTTPS requires --tls-address, --tls-cert-file and --tls-key-file together")
	}
	certificate, err := tls.LoadX509KeyPair(opts.tlsCert, opts.tlsKey)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cannot use the certificate %s with its key %s: %w", opts.tlsCert, opts.tlsKey, err)
	}
	listener, err := tls.Listen("tcp", opts.tlsAddress, &tls.Config{
		Certificates: []tls.Certificate{certificate},
		MinVersion:   tls.VersionTLS12,
		NextProtos:   []string{"http/1.1"},
	})
	if err != nil {
		return nil, cannotListen("--tls-address", opts.tlsAddress, err)
	}
	return listener, nil
}
