package gateway

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
)

// Devices returns the addresses of the devices that may connect, sorted.
func (g *Gateway) Devices() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.SortedFunc(maps.Keys(g.devices), netip.Addr.Compare)
}

// Serves reports whether a key can connect.
func (g *Gateway) Serves(key wireguard.Key) bool {
	return g.listening().Wake(key, netip.MustParseAddrPort("127.0.0.1:9")) == nil
}

// SetAnswerTime sets how long Load waits for devices to answer.
func (g *Gateway) SetAnswerTime(d time.Duration) { g.answerTime = d }

// Answered reports whether a device has a session.
func (g *Gateway) Answered(key wireguard.Key) bool { return g.listening().Answered(key) }
