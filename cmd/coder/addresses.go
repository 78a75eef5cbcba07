package main

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/codermesh/codermesh/v2/appproxy"
	"github.com/codermesh/codermesh/v2/cmd/coder/daemon"
	"github.com/codermesh/codermesh/v2/internal/certs"
	"github.com/codermesh/codermesh/v2/internal/certs/acme"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// listeners are the sockets of a server. They are opened first, so that a taken port is reported first.
type listeners struct {
	http, tls net.Listener // nil if not configured
	ssh       net.Listener // nil if not configured
	certs     *certs.Store // of tls
	acme      *acme.Source // of certs, nil without ACME
}

func listen(opts *serverOptions, log *slog.Logger) (*listeners, error) {
	var l listeners
	var err error
	if opts.tls.enabled() {
		if l.tls, l.certs, l.acme, err = opts.tls.listen(log); err != nil {
			return nil, err
		}
	}
	if opts.httpAddress != "" {
		if l.http, err = net.Listen("tcp", opts.httpAddress); err != nil {
			return nil, errors.Join(daemon.CannotListen("--http-address", opts.httpAddress, err), l.close())
		}
	}
	if l.http == nil && l.tls == nil {
		return nil, fault.New(fault.Invalid, "the server has no address: set --http-address or --tls-address")
	}
	if opts.sshAddress != "" {
		if l.ssh, err = net.Listen("tcp", opts.sshAddress); err != nil {
			return nil, errors.Join(daemon.CannotListen("--ssh-address", opts.sshAddress, err), l.close())
		}
	}
	return &l, nil
}

// certified reports whether the server has a certificate for a name.
func (l *listeners) certified(name string) bool {
	return l.certs != nil && l.certs.Has(name) || l.acme != nil && l.acme.Has(name)
}

func (l *listeners) close() error {
	var errs []error
	for _, each := range []net.Listener{l.http, l.tls, l.ssh} {
		if each == nil {
			continue
		}
		if err := each.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (l *listeners) String() string {
	var all []string
	for _, each := range []net.Listener{l.http, l.tls, l.ssh} {
		if each != nil {
			all = append(all, each.Addr().String())
		}
	}
	return strings.Join(all, " ")
}

// accessURL returns the given URL, or one derived from the addresses: HTTPS before HTTP, localhost for a wildcard.
func (l *listeners) accessURL(given string) (*url.URL, error) {
	if given != "" {
		return parseAccessURL(given)
	}
	scheme, listener := "https", l.tls
	if listener == nil {
		scheme, listener = "http", l.http
	}
	addr := listener.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		addr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: addr.Port}
	}
	return &url.URL{Scheme: scheme, Host: addr.String()}, nil
}

// parseAccessURL returns the URL of the root of a host.
func parseAccessURL(given string) (*url.URL, error) {
	wrong := func(format string, args ...any) error {
		return fault.New(fault.Invalid, "access URL %q "+format, append([]any{given}, args...)...).
			WithDetail("It looks like https://coder.example.com.")
	}
	u, err := url.Parse(given)
	if err == nil {
		given = u.Redacted()
	}
	scheme, _, _ := strings.Cut(strings.ToLower(given), "://")
	switch {
	case scheme != "http" && scheme != "https":
		return nil, wrong("must start with http:// or https://")
	case err != nil:
		return nil, wrong("cannot be read: %w", errors.Unwrap(err)) // url.Error repeats the URL
	case u.Hostname() == "":
		return nil, wrong("must name a host")
	case u.User != nil || u.ForceQuery || u.RawQuery != "" || u.Fragment != "":
		return nil, wrong("must have only a host and a port after %s://", scheme)
	case strings.Trim(u.Path, "/") != "":
		return nil, wrong("must not have a path, since the relay needs the root of a host")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, wrong("must have a port between 1 and 65535")
		}
	}
	u.Path = ""
	return u, nil
}

// wildcardHost returns the given host for apps. A server on localhost needs none: browsers resolve every name below
// localhost to this machine (RFC 6761 §6.3).
func wildcardHost(given string, accessURL *url.URL) (string, error) {
	if given != "" {
		return appproxy.ParseWildcard(given)
	}
	ip := net.ParseIP(accessURL.Hostname())
	if accessURL.Scheme != "http" || accessURL.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", nil
	}
	host := "*.localhost"
	if port := accessURL.Port(); port != "" {
		host += ":" + port
	}
	return host, nil
}

// parseReplicaURL returns nil for the empty string.
func parseReplicaURL(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fault.New(fault.Invalid, "replica URL %q must start with http:// or https:// and name a host", text).
			WithDetail("Set --replica-url to an address of this machine that the other servers reach, such as http://10.0.0.7:3000.")
	}
	return u, nil
}
