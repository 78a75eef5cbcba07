package engine

import (
	"encoding/hex"
	"net/netip"
	"sync"
	"time"

	"github.com/tailscale/wireguard-go/device"
	"go4.org/mem"
	"tailscale.com/ipn/ipnstate"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/wgengine/wgint"

	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// Peer is a node that this node exchanges packets with. Addr belongs to Key and does not change while the peer is
// known; the other fields may.
type Peer struct {
	Key  Key
	Addr netip.Addr
	// Disco is the key with which the peer proves direct paths. Zero means plain WireGuard: the peer is reached at
	// Endpoints only and cannot be pinged.
	Disco     Key
	Region    int // its home relay; 0 while unknown
	Endpoints []netip.AddrPort
	Name      string // for logs
	// Group is as in tailnet.Peer, and that of the first Upsert.
	Group stream.Group
}

// row is a peer as magicsock knows it.
type row struct {
	Peer
	id    tailcfg.NodeID // magicsock's number for the key, never reused for another key
	route *route
}

// selfID is magicsock's number for the node itself. Peers get the numbers after it.
const selfID tailcfg.NodeID = 1

// table looks up peers. The libraries read it with their own locks held, so code that holds mu must not call them.
type table struct {
	ops sync.Mutex // serializes changes; held while calling the libraries

	mu    sync.RWMutex
	last  tailcfg.NodeID
	keys  map[Key]*row
	addrs map[netip.Addr]*row
}

func newTable() table {
	return table{last: selfID, keys: make(map[Key]*row), addrs: make(map[netip.Addr]*row)}
}

func (t *table) byKey(k Key) *row {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keys[k]
}

func (t *table) byAddr(a netip.Addr) *row {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.addrs[a]
}

// put adds or replaces a peer.
func (t *table) put(p Peer) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := &row{Peer: p}
	if old := t.keys[p.Key]; old != nil {
		next.id, next.route = old.id, old.route
	} else {
		t.last++
		next.id, next.route = t.last, &route{peer: keyOf(p.Key)}
	}
	t.keys[p.Key], t.addrs[p.Addr] = next, next
	return next
}

func (t *table) drop(k Key) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.keys[k]
	if r != nil {
		delete(t.keys, k)
		delete(t.addrs, r.Addr)
	}
	return r
}

// Upsert introduces a peer or updates what is known about it. Its WireGuard session and its proven paths are kept.
func (e *Engine) Upsert(p Peer) {
	e.peers.ops.Lock()
	defer e.peers.ops.Unlock()
	r := e.peers.put(p)
	e.mux.Add(r.Addr, r.Group)
	e.magic.UpsertPeer(node(r))
	e.bind.introduced(keyOf(p.Key))
}

// ForgetPaths is like Upsert but forgets which paths to the peer were proven.
func (e *Engine) ForgetPaths(p Peer) {
	e.peers.ops.Lock()
	defer e.peers.ops.Unlock()
	r := e.peers.put(p)
	e.magic.RemovePeer(r.id)
	e.magic.UpsertPeer(node(r))
}

// Remove forgets a peer: its session ends and it cannot establish another. The owners of its connections must close
// them.
func (e *Engine) Remove(k Key) {
	e.peers.ops.Lock()
	defer e.peers.ops.Unlock()
	if r := e.peers.drop(k); r != nil {
		e.device.RemovePeer(device.NoisePublicKey(k))
		e.magic.RemovePeer(r.id)
		e.mux.Remove(r.Addr)
		e.forgetQueues(keyOf(k))
	}
}

// ResetSession ends the WireGuard session with a peer. The next packet starts a handshake at once; WireGuard alone
// would wait until five seconds after the last handshake.
func (e *Engine) ResetSession(k Key) {
	e.peers.ops.Lock()
	defer e.peers.ops.Unlock()
	e.device.RemovePeer(device.NoisePublicKey(k))
}

// RepeatHandshake sends the latest handshake initiation to a peer once more, in case it was lost. A peer that has
// received it repeats its answer, in case that was lost, so this delays no handshake in progress, which ResetSession
// would void.
func (e *Engine) RepeatHandshake(k Key) {
	if r := e.peers.byKey(k); r != nil {
		e.bind.repeat(r)
	}
}

// lookup configures a peer for WireGuard when its first packet is sent or received. It is called with WireGuard's locks
// held.
func (e *Engine) lookup(k device.NoisePublicKey) (*device.NewPeerConfig, bool) {
	p := e.peers.byKey(Key(k))
	if p == nil {
		return nil, false
	}
	endpoint, err := e.magic.ParseEndpoint(hex.EncodeToString(k[:]))
	if err != nil {
		e.logf("peer %s has no endpoint: %v", p.Name, err)
		return nil, false
	}
	return &device.NewPeerConfig{AllowedIPs: []netip.Prefix{netip.PrefixFrom(p.Addr, p.Addr.BitLen())}, Endpoint: endpoint}, true
}

// node returns magicsock's description of the peer.
func node(r *row) tailcfg.NodeView {
	own := []netip.Prefix{netip.PrefixFrom(r.Addr, r.Addr.BitLen())}
	n := &tailcfg.Node{
		ID: r.id, StableID: tailcfg.StableNodeID(r.Name), Name: r.Name + ".", Key: keyOf(r.Key), Addresses: own,
		AllowedIPs: own,
		Endpoints:  r.Endpoints, HomeDERP: r.Region, Cap: tailcfg.CurrentCapabilityVersion,
		IsWireGuardOnly: r.Disco == Key{},
	}
	if !n.IsWireGuardOnly {
		n.DiscoKey = key.DiscoPublicFromRaw32(mem.B(r.Disco[:]))
	}
	return n.View()
}

func keyOf(k Key) key.NodePublic { return key.NodePublicFromRaw32(mem.B(k[:])) }

// rawOf is the inverse of keyOf.
func rawOf(k key.NodePublic) (raw Key) {
	k.AppendTo(raw[:0])
	return raw
}

// Traffic returns how many bytes of WireGuard payload were received from and sent to a peer in the current session.
func (e *Engine) Traffic(k Key) (rx, tx uint64) {
	if p, ok := e.device.LookupActivePeer(device.NoisePublicKey(k)); ok {
		return wgint.PeerOf(p).RxBytes(), wgint.PeerOf(p).TxBytes()
	}
	return 0, 0
}

// PeerState is what the engine currently knows about a peer.
type PeerState struct {
	Rx, Tx        uint64 // as returned by Traffic
	LastHandshake time.Time
	// Endpoint is the remote end of a proven direct path. It is invalid if there is none.
	Endpoint netip.AddrPort
	Relay    string // the code of the peer's home relay
}

// PeerStates takes a snapshot of all peers. Its cost grows with the number of peers.
func (e *Engine) PeerStates() map[Key]PeerState {
	builder := &ipnstate.StatusBuilder{WantPeers: true}
	e.magic.UpdateStatus(builder)
	states := make(map[Key]PeerState)
	for k, seen := range builder.Status().Peer {
		state := PeerState{Relay: seen.Relay}
		if ep, err := netip.ParseAddrPort(seen.CurAddr); err == nil {
			state.Endpoint = ep
		}
		if p, ok := e.device.LookupActivePeer(device.NoisePublicKey(rawOf(k))); ok {
			active := wgint.PeerOf(p)
			state.Rx, state.Tx, state.LastHandshake = active.RxBytes(), active.TxBytes(), active.LastHandshake()
		}
		states[rawOf(k)] = state
	}
	return states
}
