package wggateway

import (
	"maps"
	"net/netip"
	"slices"
)

// Port returns the UDP port that the gateway listens at, 0 before Start.
func (g *Gateway) Port() uint16 {
	if wire := g.listening(); wire != nil {
		return wire.Port()
	}
	return 0
}

// Devices returns the addresses of the devices that may connect, sorted.
func (g *Gateway) Devices() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.devices), netip.Addr.Compare)
}
