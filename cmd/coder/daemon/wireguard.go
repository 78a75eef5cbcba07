package daemon

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// WireGuard are the flags of a gateway for devices with a WireGuard app.
type WireGuard struct {
	// Address is :PORT, and AccessAddress HOST:PORT at which devices reach it; "" without the flags.
	Address, AccessAddress string
	// DNSForward lets devices ask this machine's resolvers.
	DNSForward bool
}

// Flags adds the flags.
func (o *WireGuard) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Address, "wireguard-address", "", "UDP port to serve devices with a WireGuard app on, such as :51820, on all addresses of the machine (default none)")
	f.StringVar(&o.AccessAddress, "wireguard-access-address", "", "host and port at which devices reach --wireguard-address (default the access URL's host and the port of --wireguard-address)")
	f.BoolVar(&o.DNSForward, "wireguard-dns-forward", true,
		"answer devices' questions about names outside of .coder with the resolvers of this machine")
}

// Access returns the port, and the host and port at which devices reach it: "" without a gateway.
func (o *WireGuard) Access(accessURL *url.URL) (port uint16, access string, err error) {
	if o.Address == "" {
		if o.AccessAddress != "" {
			return 0, "", fault.New(fault.Invalid, "--wireguard-access-address needs --wireguard-address").
				WithDetail("Set --wireguard-address to the address to serve WireGuard on, such as :51820.")
		}
		return 0, "", nil
	}
	// Devices keep the port in their configuration, so that a free one would not do.
	host, port, ok := HostPort(o.Address)
	if ip, _ := netip.ParseAddr(host); !ok || host != "" && !ip.IsUnspecified() {
		return 0, "", fault.New(fault.Invalid, "--wireguard-address %q must be a port of all addresses", o.Address).
			WithDetail("It looks like :51820. WireGuard listens on all addresses of the machine; a firewall can say which are reached.")
	}
	if o.AccessAddress == "" {
		return port, net.JoinHostPort(accessURL.Hostname(), strconv.Itoa(int(port))), nil
	}
	if host, _, ok := HostPort(o.AccessAddress); !ok || host == "" {
		return 0, "", fault.New(fault.Invalid, "--wireguard-access-address %q must be a host and a port",
			o.AccessAddress).WithDetail("It looks like wg.coder.example.com:51820.")
	}
	return port, o.AccessAddress, nil
}

// HostPort splits HOST:PORT. It reports whether there is a port that is not 0; the host may be empty.
func HostPort(address string) (host string, port uint16, ok bool) {
	host, digits, err := net.SplitHostPort(address)
	n, parse := strconv.ParseUint(digits, 10, 16)
	return host, uint16(n), err == nil && parse == nil && n > 0
}
