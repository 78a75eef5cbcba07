package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/codermesh/codermesh/internal/fault"
)

// metricsServer answers GET /metrics.
type metricsServer struct {
	*privateServer
	registry *prometheus.Registry
}

// serveMetrics starts to listen. The caller must close the server.
func serveMetrics(address string, log *slog.Logger) (*metricsServer, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	private, err := servePrivate("--prometheus-address", address, mux)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "addr", private.addr.String())
	return &metricsServer{private, registry}, nil
}

// serveProfiles starts to serve the profiles of this process at /debug/pprof/. The caller must close the server. Profiles show what the
// process has in memory and cost CPU time, and there is no authentication: serveProfiles refuses an address that others could reach.
func serveProfiles(ctx context.Context, address string, log *slog.Logger) (*privateServer, error) {
	if err := checkPrivate(ctx, "--pprof-address", address); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	private, err := servePrivate("--pprof-address", address, mux)
	if err != nil {
		return nil, err
	}
	log.Info("serving profiles", "addr", private.addr.String())
	return private, nil
}

// checkPrivate refuses a public address, and one that stands for all of the machine's addresses. flag names the option with the address.
func checkPrivate(ctx context.Context, flag, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fault.New(fault.Invalid, "%s %q is not an address like 127.0.0.1:6060", flag, address)
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

// privateServer serves operators on an address of its own, without authentication.
type privateServer struct {
	addr net.Addr
	http *http.Server
	done chan error
}

// servePrivate starts to listen. flag names the option with the address.
func servePrivate(flag, address string, handler http.Handler) (*privateServer, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, cannotListen(flag, address, err)
	}
	s := &privateServer{listener.Addr(), &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, make(chan error, 1)}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

func (s *privateServer) close() error {
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(soon); err != nil {
		s.http.Close() // ends a scrape or a profile in progress
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.addr, err)
	}
	return nil
}
