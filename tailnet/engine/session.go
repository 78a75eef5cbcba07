package engine

import (
	"sync"

	"github.com/tailscale/wireguard-go/device"
)

// session is what the owner is told about the WireGuard session with a peer.
//
// WireGuard calls a session established once it has derived its keys. The end that answered a handshake derives them with its answer, but
// can use them only when the other end has: it sends nothing before the first packet that is encrypted with them arrives. If both ends begin
// a handshake at the same time, each answers the other's, which voids its own, and both answers are void. Neither can send then until
// WireGuard begins another handshake, five seconds later. This is common after a machine has slept: handshakes that the peer began meanwhile
// wait in its sockets. So the owner is told of a session only once WireGuard has sent a packet with its keys.
type session struct {
	mu      sync.Mutex // held while the owner is told
	derived bool       // WireGuard has keys
	usable  bool       // and has sent with them, which the owner was told
}

// sessionChanged is called by WireGuard with its locks held.
func (e *Engine) sessionChanged(k Key, derived bool) {
	r := e.peers.byKey(k)
	if r == nil { // removed
		e.opts.Session(k, false)
		return
	}
	s := &r.route.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.derived = derived
	if !derived {
		s.usable = false
		e.opts.Session(k, false)
	}
}

// sentTo notes that WireGuard sends packets to a peer.
func (e *Engine) sentTo(r *row, packet []byte) {
	if len(packet) == 0 || packet[0] != device.MessageTransportType {
		return
	}
	s := &r.route.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.derived && !s.usable {
		s.usable = true
		e.opts.Session(r.Key, true)
	}
}
