package engine

import (
	"sync"

	"github.com/tailscale/wireguard-go/device"
)

// session is what the owner is told about the WireGuard session with a peer.
//
// WireGuard calls a session established once it has derived its keys. The end that answered a handshake derives them
// with its answer, but can use them only when the other end has: it sends nothing before the first packet that is
// encrypted with them arrives. If both ends begin a handshake at the same time, each answers the other's, which voids
// its own, and both answers are void. Neither can send then until WireGuard begins another handshake, five seconds
// later. This is common after a machine has slept: handshakes that the peer began meanwhile wait in its sockets. So the
// owner is told of a session only once WireGuard has sent a packet with its keys.
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

// outdated is what WireGuard logs, with the peer, of a handshake that proves the peer's key and drops: its time is not
// later than that of the peer's last one.
const outdated = "%v - ConsumeMessageInitiation: handshake replay @ %v"

// verbose is called with what WireGuard logs in detail, holding none of its locks.
//
// WireGuard tells a handshake from the copy of an earlier one by the time in it. A peer whose clock was set back begins
// handshakes in vain until the clock has caught up. It still answers them, so this end begins one instead. If the
// handshake is a copy of an old one, sent by an attacker, that costs the real peer one handshake, at most every five
// seconds, and no session: WireGuard keeps the current one until the new one is used. After a handshake that was
// answered, for which a copy may still come (see RepeatHandshake), WireGuard begins none for as long.
func (e *Engine) verbose(format string, args ...any) {
	e.logf("[v2] "+format, args...)
	if format != outdated {
		return
	}
	if peer, ok := args[0].(*device.Peer); ok {
		if err := peer.SendHandshakeInitiation(false); err != nil {
			e.logf("cannot begin a handshake instead of %v: %v", peer, err)
		}
	}
}
