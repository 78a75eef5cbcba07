// Package appaddr decides where the address of an app in a template leads, and how it is asked. The proxies that open
// apps and the agent that checks their health share it: an app that is healthy can be opened, as far as its address,
// its certificate and the size of its headers matter.
package appaddr

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// maxHeader bounds the header of an app's answer, in bytes.
const maxHeader = 256 << 10

// IsLoopback reports whether the host of an app's address is the workspace itself. All such hosts lead to the same
// place: the port on the workspace's loopback interface, whether the address names 127.0.0.1, ::1 or all addresses.
func IsLoopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761 §6.3
		return true
	}
	ip, err := netip.ParseAddr(host)
	ip = ip.Unmap()
	return err == nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// Port returns the port of an http or https URL, which may be the scheme's default. ok is false for a port that cannot
// be used.
func Port(u *url.URL) (port uint16, ok bool) {
	switch text := u.Port(); {
	case text == "" && u.Scheme == "https":
		return 443, true
	case text == "":
		return 80, true
	default:
		n, err := strconv.ParseUint(text, 10, 16)
		return uint16(n), err == nil && n > 0
	}
}

// Transport asks apps on loopback interfaces. dial connects to a port of the host that a request's URL names. Redirects
// are answers, which the transport returns like all others.
func Transport(dial func(ctx context.Context, host string, port uint16) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, text, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, fmt.Errorf("port of an app: %w", err)
			}
			return dial(ctx, host, uint16(port))
		},
		// The loopback interface is the workspace's own, and its names have no certificates. Between server and
		// workspace, WireGuard has proven the agent's identity.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true, ServerName: "localhost"},
		MaxResponseHeaderBytes: maxHeader,
	}
}
