package coderd

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
)

// listenLocal returns the URL at which this process's own nodes reach the coordinator and the relay, over plain HTTP: a
// server that serves HTTPS alone opens a port of the loopback interface for them.
func (s *Server) listenLocal() (*url.URL, error) {
	if s.opts.HTTP != nil {
		return localURL(s.opts.HTTP), nil
	}
	var err error
	if s.local, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the nodes of this process: %w", err)
	}
	return localURL(s.local), nil
}

// localURL is how this process reaches a listener of its own.
func localURL(l net.Listener) *url.URL {
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
