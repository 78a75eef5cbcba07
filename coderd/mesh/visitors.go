package mesh

import (
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// visitorAge is how long a client is remembered after it joined, and maxVisitors how many are.
	visitorAge  = time.Hour
	maxVisitors = 1 << 16
	// sweepEvery is how often old ones are removed.
	sweepEvery = time.Minute
)

// visitors remembers which users joined as which clients. An agent may report a short connection after its client has
// left, and the coordinator no longer knows it then. The zero value is ready to use.
type visitors struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]visitor // guarded by mu
	swept  time.Time              // guarded by mu
}

type visitor struct {
	Peer
	joined time.Time
}

// note remembers a client. A client that joins again with the same key keeps its user: another user who sends the key
// of a client that has left must not take its place.
func (v *visitors) note(p coordinator.Principal, now time.Time) {
	addr := tailnet.Addr(p.ID)
	v.mu.Lock()
	defer v.mu.Unlock()
	if now.Sub(v.swept) >= sweepEvery {
		v.swept = now
		for addr, known := range v.byAddr {
			if now.Sub(known.joined) >= visitorAge {
				delete(v.byAddr, addr)
			}
		}
	}
	if known, ok := v.byAddr[addr]; ok && known.User != p.Subject || !ok && len(v.byAddr) >= maxVisitors {
		return
	}
	if v.byAddr == nil {
		v.byAddr = map[netip.Addr]visitor{}
	}
	v.byAddr[addr] = visitor{Peer{User: p.Subject, Addr: p.Addr}, now}
}

// peer returns the client that joined last with a mesh address.
func (v *visitors) peer(addr netip.Addr) (Peer, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known, ok := v.byAddr[addr]
	return known.Peer, ok && known.User != uuid.Nil
}
