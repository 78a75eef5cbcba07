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
	// knownClientAge is how long a client is remembered after it joined, and maxKnownClients how many are.
	knownClientAge  = time.Hour
	maxKnownClients = 1 << 16
	// sweepEvery is how often old ones are removed.
	sweepEvery = time.Minute
)

// knownClients remembers which users joined as which clients. An agent may report a short connection after its client
// has left, and the coordinator no longer knows it then. The zero value is ready to use.
type knownClients struct {
	mu     sync.Mutex
	byAddr map[netip.Addr]knownClient // guarded by mu
	swept  time.Time                  // guarded by mu
}

type knownClient struct {
	Peer
	joined time.Time
}

// note remembers a client. A client that joins again with the same key keeps its user: another user who sends the key
// of a client that has left must not take its place.
func (k *knownClients) note(p coordinator.Principal, now time.Time) {
	addr := tailnet.Addr(p.ID)
	k.mu.Lock()
	defer k.mu.Unlock()
	if now.Sub(k.swept) >= sweepEvery {
		k.swept = now
		for addr, known := range k.byAddr {
			if now.Sub(known.joined) >= knownClientAge {
				delete(k.byAddr, addr)
			}
		}
	}
	if known, ok := k.byAddr[addr]; ok && known.User != p.Subject || !ok && len(k.byAddr) >= maxKnownClients {
		return
	}
	if k.byAddr == nil {
		k.byAddr = map[netip.Addr]knownClient{}
	}
	k.byAddr[addr] = knownClient{Peer{User: p.Subject, Addr: p.Addr}, now}
}

// peer returns the client that joined last with a mesh address.
func (k *knownClients) peer(addr netip.Addr) (Peer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.byAddr[addr]
	return known.Peer, ok && known.User != uuid.Nil
}
