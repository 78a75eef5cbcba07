package main

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/cmd/coder/cli/flags"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// wireGuardOptions are the flags of the WireGuard gateway.
type wireGuardOptions struct {
	address       string
	accessAddress string
	dnsForward    bool
	maxLifetime   flags.Days
}

func (o *wireGuardOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.address, "wireguard-address", "", "UDP port to serve devices with a WireGuard app on, such as :51820, on all addresses of the machine (default none)")
	f.StringVar(&o.accessAddress, "wireguard-access-address", "", "host and port at which devices reach --wireguard-address (default the access URL's host and the port of --wireguard-address)")
	f.BoolVar(&o.dnsForward, "wireguard-dns-forward", true, "answer devices' questions about names outside of .coder with the server's own resolvers")
	f.Var(&o.maxLifetime, "max-device-lifetime", "how long a device may connect after it was added, such as 30d; users can choose less")
}

// access returns the host and port at which devices reach the gateway, "" without one.
func (o *wireGuardOptions) access(accessURL *url.URL) (string, error) {
	if o.address == "" {
		if o.accessAddress != "" {
			return "", fault.New(fault.Invalid, "--wireguard-access-address needs --wireguard-address").WithDetail("Set --wireguard-address to the address to serve WireGuard on, such as :51820.")
		}
		return "", nil
	}
	// Devices keep the port in their configuration, so that a free one would not do.
	host, port, ok := hostPort(o.address)
	if ip, _ := netip.ParseAddr(host); !ok || host != "" && !ip.IsUnspecified() {
		return "", fault.New(fault.Invalid, "--wireguard-address %q must be a port of all addresses", o.address).
			WithDetail("It looks like :51820. WireGuard listens on all addresses of the machine; a firewall can say which are reached.")
	}
	if o.accessAddress == "" {
		return net.JoinHostPort(accessURL.Hostname(), strconv.Itoa(int(port))), nil
	}
	if host, _, ok := hostPort(o.accessAddress); !ok || host == "" {
		return "", fault.New(fault.Invalid, "--wireguard-access-address %q must be a host and a port", o.accessAddress).WithDetail("It looks like wg.coder.example.com:51820.")
	}
	return o.accessAddress, nil
}

func (o *wireGuardOptions) checkLifetime() error {
	if lifetime := time.Duration(o.maxLifetime); lifetime < devices.MinLifetime {
		return fault.New(fault.Invalid, "--max-device-lifetime must be at least %s", devices.MinLifetime).WithDetail("Every device expires. Leave the flag out for 90 days.")
	}
	return nil
}
