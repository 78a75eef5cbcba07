package coderd

import (
	"net"
	"net/netip"
	"net/url"
)

// localURL is how this process reaches its own plain HTTP listener.
func localURL(l net.Listener) *url.URL {
	if l == nil {
		return nil
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	host := addr.Addr().Unmap()
	if host.IsUnspecified() {
		host = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return &url.URL{Scheme: "http", Host: netip.AddrPortFrom(host, addr.Port()).String()}
}

// replicaURL is where other servers reach this one.
func (s *Server) replicaURL() *url.URL {
	if s.opts.ReplicaURL != nil {
		return s.opts.ReplicaURL
	}
	for scheme, listener := range map[string]net.Listener{"http": s.opts.HTTP, "https": s.opts.TLS} {
		if listener == nil || scheme == "https" && s.opts.HTTP != nil {
			continue
		}
		addr := listener.Addr().(*net.TCPAddr).AddrPort()
		return &url.URL{Scheme: scheme, Host: netip.AddrPortFrom(reachable(addr.Addr().Unmap()), addr.Port()).String()}
	}
	return s.opts.AccessURL
}

// reachable returns an address of this host that others reach, if addr stands for all of them.
func reachable(addr netip.Addr) netip.Addr {
	if !addr.IsUnspecified() {
		return addr
	}
	own, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range own {
			prefix, err := netip.ParsePrefix(a.String())
			if ip := prefix.Addr().Unmap(); err == nil && ip.IsGlobalUnicast() && (ip.Is4() || addr.Is6()) {
				return ip
			}
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
