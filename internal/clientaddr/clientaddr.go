// Package clientaddr finds the address of the client that a request comes from, behind the reverse proxies that the
// operator trusts. Each process decides it once for a request, in front of all its handlers. Nothing else may read the
// peer's address or the headers that proxies add.
package clientaddr

import (
	"context"
	"net/http"
	"net/netip"
	"strings"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// defaultHeader is the header in which proxies name the client unless the operator names another.
const defaultHeader = "X-Forwarded-For"

// Proxies are the reverse proxies that may name the client's address. The zero value trusts none.
type Proxies struct {
	// Networks are where the proxies are.
	Networks []netip.Prefix
	// Headers lists the headers in which proxies name the client; the first that is present counts. Nil means
	// X-Forwarded-For.
	Headers []string
}

// ParseProxies reads the settings --proxy-trusted-origins, networks or single addresses, and --proxy-trusted-headers.
func ParseProxies(origins, headers []string) (Proxies, error) {
	if len(headers) > 0 && len(origins) == 0 {
		return Proxies{}, fault.New(fault.Invalid, "--proxy-trusted-headers requires --proxy-trusted-origins").
			WithDetail("Clients could forge their address with a header that is trusted from everywhere: name the " +
				"proxies' networks.")
	}
	for _, header := range headers {
		if header == "" ||
			strings.Trim(header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return Proxies{}, fault.New(fault.Invalid, "--proxy-trusted-headers cannot name %q", header).
				WithDetail("It looks like X-Forwarded-For.")
		}
	}
	networks, err := ParseNetworks("--proxy-trusted-origins", origins)
	return Proxies{Headers: headers, Networks: networks}, err
}

// ParseNetworks parses the networks and addresses that a flag names.
func ParseNetworks(flag string, texts []string) ([]netip.Prefix, error) {
	var networks []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			addr, addrErr := netip.ParseAddr(strings.TrimSpace(text))
			if addrErr != nil || addr.Zone() != "" {
				return nil, fault.New(fault.Invalid, "%s cannot be %q: %w", flag, text, err).
					WithDetail("It looks like 10.0.0.0/8.")
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		networks = append(networks, prefix.Masked())
	}
	return networks, nil
}

type clientKey struct{}

// client is what a process has decided about a request.
type client struct {
	addr    netip.Addr
	proxied bool
}

// Handler decides the address of each request's client. It must be in front of every handler of a process.
func (p Proxies) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, p.client(r))))
	})
}

// Of returns the client's address: what a Handler in front has decided, or else the peer's. It is the zero Addr if the
// peer has none.
func Of(r *http.Request) netip.Addr { return of(r).addr }

// Proxied reports whether a trusted proxy passed the request on.
func Proxied(r *http.Request) bool { return of(r).proxied }

func of(r *http.Request) client {
	if c, ok := r.Context().Value(clientKey{}).(client); ok {
		return c
	}
	return Proxies{}.client(r)
}

// client returns the peer, or the client that a trusted proxy names. A header with one address is taken as it is; a
// list is followed from the right as long as the hops are trusted.
func (p Proxies) client(r *http.Request) client {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return client{}
	}
	c := client{addr: peer.Addr().Unmap()}
	c.proxied = p.trusts(c.addr)
	headers := p.Headers
	if len(headers) == 0 {
		headers = []string{defaultHeader}
	}
	for _, name := range headers {
		values := r.Header.Values(name)
		if len(values) == 0 {
			continue
		}
		hops := strings.Split(strings.Join(values, ","), ",")
		for i := len(hops) - 1; i >= 0 && p.trusts(c.addr); i-- {
			hop, ok := parseHop(hops[i])
			if !ok {
				break
			}
			c.addr = hop
		}
		break
	}
	return c
}

// parseHop reads an address, to which some proxies add a port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	addr, err := netip.ParseAddr(text)
	if err != nil {
		withPort, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}, false
		}
		addr = withPort.Addr()
	}
	return addr.Unmap(), true
}

func (p Proxies) trusts(addr netip.Addr) bool {
	for _, network := range p.Networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}
