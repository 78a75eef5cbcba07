package tailnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/tailnet/engine"
	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// maxEndpoints is the maximum number of endpoints tried for one peer. An honest node has a handful.
const maxEndpoints = 32

// Peer is a participant that was introduced to this node.
type Peer struct {
	NodeInfo
	// Inbound is the set of this node's ports to which the peer may open connections.
	Inbound Inbound
	// Watch makes the node monitor the path to the peer while connections with it are open, so that a path that
	// recovers from a sleep or an outage is used within a second or two. It costs small packets every two seconds to a
	// peer that this node dialed. A node should watch few peers.
	Watch bool
	// Group names peers that share a bound of the memory that they make this node hold, such as the agents of one user.
	// It is that of the introduction: an update does not change it. The zero value is a group of the peer alone.
	Group uuid.UUID
	// WireGuardOnly marks a peer that runs plain WireGuard: it has no disco key and no relay, and is reached at
	// Endpoints.
	WireGuardOnly bool
}

// peer is a row of the table. It is immutable and replaced as a whole; live is shared by all rows of one key.
type peer struct {
	Peer
	addr netip.Addr
	live *live
}

// peerTable looks up peers by id, address or key. The engine reads it for every packet.
type peerTable struct {
	watched atomic.Int64 // how many rows have Watch

	mu     sync.RWMutex
	byID   map[uuid.UUID]*peer
	byAddr map[netip.Addr]*peer
	byKey  map[PublicKey]*peer
}

func newPeerTable() *peerTable {
	return &peerTable{
		byID:   make(map[uuid.UUID]*peer),
		byAddr: make(map[netip.Addr]*peer),
		byKey:  make(map[PublicKey]*peer),
	}
}

func (t *peerTable) id(id uuid.UUID) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byID[id]
}

func (t *peerTable) ip(addr netip.Addr) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byAddr[addr]
}

func (t *peerTable) key(k PublicKey) *peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byKey[k]
}

func (t *peerTable) all() []*peer {
	t.mu.RLock()
	defer t.mu.RUnlock()
	rows := make([]*peer, 0, len(t.byID))
	for _, p := range t.byID {
		rows = append(rows, p)
	}
	return rows
}

func (t *peerTable) put(p *peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(t.byID[p.ID], -1)
	t.count(p, 1)
	t.byID[p.ID], t.byAddr[p.addr], t.byKey[p.Key] = p, p, p
}

func (t *peerTable) drop(p *peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(t.byID[p.ID], -1)
	delete(t.byID, p.ID)
	delete(t.byAddr, p.addr)
	delete(t.byKey, p.Key)
}

// count updates watched. t.mu must be held; p may be nil.
func (t *peerTable) count(p *peer, by int64) {
	if p != nil && p.Watch {
		t.watched.Add(by)
	}
}

// Upsert introduces a peer or updates what is known about it. A changed key or disco key means that the peer restarted:
// connections with the old one end. An update about the same process that is older (by Seq) than what is known changes
// only the Inbound policy. An update without endpoints keeps the old ones, unless the peer has moved; when the first
// endpoints arrive, the node tries them at once. Connections that a narrower policy no longer allows end. Upsert does
// not block on the network.
func (n *Node) Upsert(in Peer) error {
	if err := n.checkPeer(in); err != nil {
		return fmt.Errorf("upsert peer %s: %w", in.ID, err)
	}
	in.Endpoints = usable(in.Endpoints)

	n.peerOps.Lock()
	defer n.peerOps.Unlock()
	if n.closed.Load() {
		return fmt.Errorf("upsert peer %s: %w", in.ID, ErrClosed)
	}
	if holder := n.peers.key(in.Key); holder != nil && holder.ID != in.ID {
		return fmt.Errorf("upsert peer %s: key %s belongs to %s", in.ID, in.Key, holder.ID)
	}
	old := n.peers.id(in.ID)
	if old != nil && (old.Key != in.Key || old.Disco != in.Disco) {
		n.dropPeer(old)
		old = nil
	}
	if old != nil && len(in.Endpoints) == 0 && in.Moves == old.Moves {
		in.Endpoints, in.Mapped = old.Endpoints, old.Mapped // an update without endpoints keeps the old ones
	}
	next := &peer{Peer: in, addr: in.Addr()}
	if old == nil {
		next.live = newLive()
	} else {
		next.live = old.live
		if in.Seq < old.Seq {
			next.NodeInfo = old.NodeInfo
		}
	}
	n.peers.put(next)
	if old != nil && next.Moves != old.Moves {
		n.log.Debug("peer has moved", "peer", next.ID)
		n.engine.ForgetPaths(next.enginePeer())
	} else {
		n.engine.Upsert(next.enginePeer())
	}
	if old != nil && len(old.Endpoints) == 0 && len(next.Endpoints) > 0 {
		n.probe(next)
	}
	if old != nil && !in.Inbound.covers(old.Inbound) {
		next.live.closeWhere(func(c *trackedConn) bool { return c.inbound && !in.Inbound.Allows(c.localPort) })
	}
	return nil
}

// Remove forgets a peer: connections with it end, and it can no longer complete a handshake. Unknown ids are ignored.
func (n *Node) Remove(id uuid.UUID) {
	n.peerOps.Lock()
	defer n.peerOps.Unlock()
	if p := n.peers.id(id); p != nil && !n.closed.Load() {
		n.dropPeer(p)
	}
}

// Peers returns all introduced peers, in no particular order.
func (n *Node) Peers() []Peer {
	rows := n.peers.all()
	peers := make([]Peer, len(rows))
	for i, p := range rows {
		peers[i] = p.Peer
	}
	return peers
}

// dropPeer removes a row. n.peerOps must be held.
func (n *Node) dropPeer(p *peer) {
	n.peers.drop(p)
	n.engine.Remove(p.Key)
	p.live.end()
}

func (n *Node) checkPeer(p Peer) error {
	switch {
	case p.ID == uuid.Nil:
		return errors.New("missing id")
	case p.ID == n.id, p.Key == n.public:
		return errors.New("peer is this node")
	case p.Key.IsZero():
		return errors.New("missing key")
	case p.Disco.IsZero() && !p.WireGuardOnly:
		return errors.New("missing disco key")
	case p.Region < 0 || p.Region > 0xffff:
		return fmt.Errorf("relay region %d is out of range", p.Region)
	}
	return nil
}

// usable drops addresses that cannot be a peer's endpoint.
func usable(endpoints []netip.AddrPort) []netip.AddrPort {
	kept := slices.DeleteFunc(slices.Clone(endpoints), func(ep netip.AddrPort) bool {
		addr := ep.Addr()
		return !ep.IsValid() || ep.Port() == 0 || addr.IsUnspecified() || addr.IsMulticast() || Prefix.Contains(addr)
	})
	return kept[:min(len(kept), maxEndpoints)]
}

// enginePeer returns what the engine must know about the peer.
func (p *peer) enginePeer() engine.Peer {
	row := engine.Peer{
		Key: p.Key, Addr: p.addr, Disco: p.Disco, Region: p.Region, Endpoints: p.Endpoints, Name: p.ID.String(),
		Group: stream.Group(p.Group),
	}
	if p.WireGuardOnly {
		row.Disco = engine.Key{}
	}
	return row
}

// sessionChanged is called with the engine's locks held.
func (n *Node) sessionChanged(k engine.Key, established bool) {
	if p := n.peers.key(k); p != nil {
		p.live.setSession(established)
	}
}
