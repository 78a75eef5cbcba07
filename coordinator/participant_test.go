package coordinator_test

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// fakeNode is a Node without WireGuard. Like a real one, it has a home relay once it has a relay map.
type fakeNode struct {
	mu      sync.Mutex
	info    tailnet.NodeInfo
	peers   map[uuid.UUID]tailnet.Peer
	online  bool
	relays  int
	log     []string
	refuse  error // of Upsert
	changed chan struct{}
}

func newFakeNode(id uuid.UUID, k tailnet.PublicKey) *fakeNode {
	return &fakeNode{
		info:  tailnet.NodeInfo{ID: id, Key: k, Disco: disco(1), Seq: 1},
		peers: make(map[uuid.UUID]tailnet.Peer), changed: make(chan struct{}, 1),
	}
}

func (n *fakeNode) PublicKey() tailnet.PublicKey { return n.info.Key }
func (n *fakeNode) Changed() <-chan struct{}     { return n.changed }

func (n *fakeNode) Info() tailnet.NodeInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.info
}

func (n *fakeNode) SetRelayMap(m tailnet.RelayMap, _ *url.URL) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.relays++
	if len(m.Regions) > 0 && n.info.Region == 0 {
		n.info.Region = m.Regions[0].ID
		n.info.Seq++
		n.signal()
	}
	return nil
}

func (n *fakeNode) signal() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// move changes the information that the node announces.
func (n *fakeNode) move() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.info.Seq++
	n.signal()
}

func (n *fakeNode) Upsert(p tailnet.Peer) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse != nil {
		return n.refuse
	}
	if old, ok := n.peers[p.ID]; ok && old.Key != p.Key {
		return errors.New("this address has another key")
	}
	n.peers[p.ID] = p
	n.log = append(n.log, "upsert")
	return nil
}

func (n *fakeNode) Remove(id uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.peers, id)
	n.log = append(n.log, "remove")
}

func (n *fakeNode) SetOnline(online bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.online = online
}

func (n *fakeNode) peer(id uuid.UUID) (tailnet.Peer, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.peers[id]
	return p, ok
}

func (n *fakeNode) isOnline() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.online
}

// participant is a Client with a fakeNode.
type participant struct {
	*client.Client
	node atomic.Pointer[fakeNode]
}

// join starts a participant; opts need Dial or URL. Its node is made here unless opts make it.
func join(t testing.TB, kind protocol.Kind, k tailnet.PublicKey, opts client.Options) *participant {
	t.Helper()
	p := &participant{}
	opts.Kind, opts.Key = kind, k
	if opts.NewNode == nil {
		opts.NewNode = func(w protocol.Welcome) (client.Node, error) {
			n := newFakeNode(w.ID, k)
			if !p.node.CompareAndSwap(nil, n) {
				t.Error("a second node was made")
			}
			return n, nil
		}
	}
	opts.Inbound = func(kind protocol.Kind) tailnet.Inbound {
		if kind == protocol.KindClient {
			return tailnet.InboundAll
		}
		return tailnet.InboundNone
	}
	p.Client = client.New(opts)
	p.Start()
	t.Cleanup(func() { p.Close() })
	return p
}

// door provides a Dial to the server that is currently behind it.
type door struct {
	mu     sync.Mutex
	p      coordinator.Principal
	server *coordinator.Server // nil: closed
	refuse error
	tries  int
	conn   protocol.Conn
}

func (d *door) dial(ctx context.Context, h protocol.Hello) (protocol.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	if d.refuse != nil {
		return nil, d.refuse
	}
	if d.server == nil {
		return nil, fault.New(fault.Unavailable, "connection refused")
	}
	conn, err := d.server.Dialer(d.p)(ctx, h)
	d.conn = conn
	return conn, err
}

func (d *door) set(s *coordinator.Server, refuse error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.refuse = s, refuse
}

// cut ends the connection without a bye.
func (d *door) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn.Close(1001, "")
}

func (d *door) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tries
}

func (n *fakeNode) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.peers)
}
