package gateway

import (
	"maps"
	"net/netip"
	"slices"
)

// Devices returns the addresses of the devices that may connect, sorted.
func (g *Gateway) Devices() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.devices), netip.Addr.Compare)
}
