// Package webdial defines how the program reaches servers over HTTP: the API, the coordinator's websocket and relays.
// All of them use the same proxy settings (HTTPS_PROXY, HTTP_PROXY, NO_PROXY), certificate authorities and timeouts.
//
// It does not interpret what is sent.
package webdial

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

const (
	// dialTimeout bounds the TCP connection, handshakeTimeout the TLS handshake.
	dialTimeout      = 30 * time.Second
	handshakeTimeout = 15 * time.Second
	// keepAlive is the time between two probes of a silent connection.
	keepAlive = 15 * time.Second
	// maxSegment is how many bytes a TCP segment that passes every IPv6 path carries: IPv6's minimum MTU without the
	// headers.
	maxSegment = 1280 - 40 - 20
)

// Transport returns a transport for HTTP/1.1 that reuses its connections. The caller may change it before the first
// request. Transport copies config; nil means the system's authorities and no client certificate.
func Transport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSClientConfig:     config.Clone(),
		TLSHandshakeTimeout: handshakeTimeout,
	}
}

// Upgrader returns a transport for requests that upgrade their connection. It does not reuse connections.
func Upgrader(config *tls.Config) *http.Transport {
	t := Transport(config)
	t.DisableKeepAlives = true
	return t
}

// Cautious makes the connections of a transport use small segments in both directions, which pass paths that silently
// drop large packets. It costs a fifth more packets than Ethernet's segments. Connections to this machine's loopback
// address are left alone: their segments may be 50 times as long.
func Cautious(t *http.Transport) *http.Transport {
	t.DialContext = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive, Control: limitSegments}).DialContext
	return t
}

// Proxy returns the proxy for a URL, or nil.
func Proxy(u *url.URL) (*url.URL, error) { return http.ProxyFromEnvironment(&http.Request{URL: u}) }
