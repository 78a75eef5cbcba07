package main

import (
	"net/netip"
	"strings"

	"github.com/codermesh/codermesh/internal/fault"
)

// trustedProxies parses --proxy-trusted-origins: networks or single addresses.
func trustedProxies(origins, headers []string) ([]netip.Prefix, error) {
	if len(headers) > 0 && len(origins) == 0 {
		return nil, fault.New(fault.Invalid, "--proxy-trusted-headers requires --proxy-trusted-origins").
			WithDetail("Clients could forge their address with a header that is trusted from everywhere: name the proxies' networks.")
	}
	for _, header := range headers {
		if header == "" || strings.Trim(header, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") != "" {
			return nil, fault.New(fault.Invalid, "--proxy-trusted-headers cannot name %q", header).WithDetail("It looks like X-Forwarded-For.")
		}
	}
	var out []netip.Prefix
	for _, origin := range origins {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(origin))
		if err != nil {
			addr, addrErr := netip.ParseAddr(strings.TrimSpace(origin))
			if addrErr != nil || addr.Zone() != "" {
				return nil, fault.New(fault.Invalid, "--proxy-trusted-origins cannot be %q: %w", origin, err).WithDetail("It looks like 10.0.0.0/8.")
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		out = append(out, prefix.Masked())
	}
	return out, nil
}
