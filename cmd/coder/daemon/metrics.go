package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/codermesh/codermesh/v2/internal/hosts"
)

// Metrics is a server that answers GET /metrics.
type Metrics struct {
	*Private
	Registry *prometheus.Registry
}

// ServeMetrics starts to answer with the metrics of the process, and of what the caller registers. The caller must
// close the server.
func ServeMetrics(address string, log *slog.Logger) (*Metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
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

// SocketPath returns the path in an address like unix:/run/codermesh/metrics.sock, or "" for an address of TCP.
func SocketPath(address string) string {
	path, _ := strings.CutPrefix(address, "unix:")
	if path == address {
		return ""
	}
	return path
}

// ServePrivate starts to listen: on TCP, where every program of this machine reaches a loopback address, including
// templates and workspaces that are processes; or on a Unix socket, where only this account does. On loopback it
// answers only to localhost, the machine's name and addresses, so that no web page reads it under a name of its own
// (package hosts). The caller must close the server. flag names the option with the address.
func ServePrivate(flag, address string, handler http.Handler) (*Private, error) {
	var listener net.Listener
	var err error
	if strings.HasPrefix(address, "unix:") {
		listener, err = listenSocket(SocketPath(address))
	} else {
		listener, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, CannotListen(flag, address, err)
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); ok && addr.IP.IsLoopback() {
		handler = hosts.New(hosts.Options{}).Handler(handler)
	}
	s := &Private{listener.Addr(), &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
	}, make(chan error, 1)}
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// listenSocket opens a Unix socket for this account alone. It replaces the socket of a process that was killed.
func listenSocket(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) {
		return nil, errors.New("the socket's path must be absolute")
	}
	listener, err := net.Listen("unix", path)
	if errors.Is(err, syscall.EADDRINUSE) {
		if other, dialed := net.Dial("unix", path); dialed == nil {
			other.Close()
			return nil, err
		} else if info, found := os.Lstat(path); !errors.Is(dialed, syscall.ECONNREFUSED) || found != nil || info.Mode().Type() != os.ModeSocket {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("replace socket: %w", err)
		}
		listener, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	// Others cannot connect before either, unless the umask lets them write.
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("close socket to others: %w", err), listener.Close())
	}
	return listener, nil
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
