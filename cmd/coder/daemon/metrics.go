package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is a server that answers GET /metrics.
type Metrics struct {
	*Private
	Registry *prometheus.Registry
}

// ServeMetrics starts to answer with the metrics of the process, and of what the caller registers. The caller must close the server.
func ServeMetrics(address string, log *slog.Logger) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	private, err := ServePrivate("--prometheus-address", address, mux)
	if err != nil {
		return nil, err
	}
	log.Info("serving metrics", "addr", private.Addr.String())
	return &Metrics{private, registry}, nil
}

// Private serves operators on an address of its own, without authentication.
type Private struct {
	Addr net.Addr
	http *http.Server
	done chan error
}

// ServePrivate starts to listen. The caller must close the server. flag names the option with the address.
func ServePrivate(flag, address string, handler http.Handler) (*Private, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, CannotListen(flag, address, err)
	}
	s := &Private{listener.Addr(), &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}, make(chan error, 1)}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// Close ends requests that take longer than a second.
func (s *Private) Close() error {
	soon, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(soon); err != nil {
		s.http.Close() // ends a scrape or a profile in progress
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Addr, err)
	}
	return nil
}
