package engine

import (
	"sync"
	"time"

	"github.com/tailscale/wireguard-go/device"
	"tailscale.com/types/key"
)

// strangers keeps WireGuard handshakes that relays deliver from nodes that are not peers yet. The coordinator
// introduces both nodes at the same time, so the first handshake of one may overtake the introduction to the other.
// WireGuard would repeat it only after five seconds.
//
// A relay carries packets of admitted nodes only, and what is kept is bounded: one handshake for each of a few nodes,
// for a short time.
type strangers struct {
	mu   sync.Mutex
	kept map[key.NodePublic]strange
}

// strange is the latest handshake of a stranger.
type strange struct {
	packet received
	at     time.Time
}

const (
	maxStrangers = 64
	// strangerTime is how long a handshake is kept. Its sender gives up on it after about as long and begins another.
	strangerTime = 2 * time.Second
)

// keep stores p if it is a handshake and there is room, and reports whether it did.
func (s *strangers) keep(p received) bool {
	if len(p.data) != device.MessageInitiationSize || p.data[0] != device.MessageInitiationType {
		return false
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, old := range s.kept {
		if k == p.from || now.Sub(old.at) >= strangerTime {
			freePacket(old.packet.data)
			delete(s.kept, k)
		}
	}
	if len(s.kept) >= maxStrangers {
		return false
	}
	if s.kept == nil {
		s.kept = make(map[key.NodePublic]strange)
	}
	s.kept[p.from] = strange{p, now}
	return true
}

// take removes and returns the handshake kept for a node that has become a peer, if there is one.
func (s *strangers) take(from key.NodePublic) (p received, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, ok := s.kept[from]
	if !ok {
		return received{}, false
	}
	delete(s.kept, from)
	if time.Since(old.at) >= strangerTime {
		freePacket(old.packet.data)
		return received{}, false
	}
	return old.packet, true
}
