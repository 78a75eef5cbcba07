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

// unconfirmed reports whether the peer may not have what this end answered its handshake with.
func (s *session) unconfirmed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.derived && !s.usable
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
// answered WireGuard begins none for as long. Then a copy (see RepeatHandshake) says that the answer has perhaps not
// arrived.
func (e *Engine) verbose(format string, args ...any) {
	e.logf("[v2] "+format, args...)
	if format != outdated {
		return
	}
	if peer, ok := args[0].(*device.Peer); ok {
		if err := peer.SendHandshakeInitiation(false); err != nil {
			e.logf("cannot begin a handshake instead of %v: %v", peer, err)
		}
		e.answerAgain(peer)
	}
}

// answerAgain repeats the latest answer to a peer's handshake. The first one is lost if it is sent to a relay that the
// peer is still connecting to, while no direct path is proven; the peer, which repeats its handshake as soon as there is
// a path, would begin another one only half a second later.
func (e *Engine) answerAgain(peer *device.Peer) {
	// WireGuard knows the peer's endpoint, and bind.Send the answer, which it sends in place of an empty packet.
	if err := peer.SendBuffers([][]byte{make([]byte, device.MessageEncapsulatingTransportSize)}); err != nil {
		e.logf("cannot repeat the answer to %v: %v", peer, err)
	}
}
