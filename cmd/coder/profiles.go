package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"

	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// serveProfiles starts to serve the profiles of this process at /debug/pprof/. The caller must close the server.
// Profiles show what the process has in memory and cost CPU time, and there is no authentication: serveProfiles refuses
// an address that other machines could reach. It does not serve the command line, which may hold secrets, because every
// program of this machine reaches a loopback address.
func serveProfiles(ctx context.Context, address string, log *slog.Logger) (*daemon.Private, error) {
	if err := checkPrivate(ctx, "--pprof-address", address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	private, err := daemon.ServePrivate("--pprof-address", address, mux)
	if err != nil {
		return nil, err
	}
	log.Info("serving profiles", "addr", private.Addr.String())
	return private, nil
}

// checkPrivate refuses a public address, and one that stands for all of the machine's addresses. flag names the option
// with the address.
func checkPrivate(ctx context.Context, flag, address string) error {
	if daemon.SocketPath(address) != "" {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fault.New(fault.Invalid,
			"%s %q is not an address like 127.0.0.1:6060 or unix:/run/codermesh/profiles.sock", flag, address)
	}
	addrs := []netip.Addr{netip.IPv6Unspecified()} // what an empty host means
	if host != "" {
		if addrs, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
			return fault.New(fault.Invalid, "cannot find the host of %s %q: %w", flag, address, err)
		}
	}
	for _, addr := range addrs {
		if addr = addr.Unmap(); !addr.IsLoopback() && !addr.IsPrivate() && !addr.IsLinkLocalUnicast() {
			return fault.New(fault.Invalid, "%s %q is not a private address", flag, address).
				WithDetail("Use a loopback address such as 127.0.0.1:6060, or one of a private network such as 10.0.0.7:6060.")
		}
	}
	return nil
}
