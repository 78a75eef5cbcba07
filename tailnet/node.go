package tailnet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet/engine"
)

// Options configures a Node.
type Options struct {
	// ID is required: Addr(ID) is the node's address.
	ID uuid.UUID
	// Key is the node's private key. Zero means a new one.
	Key PrivateKey
	// Logger receives the node's log. Nil discards it.
	Logger *slog.Logger
	// RelayOnly disables direct paths, in both directions.
	RelayOnly bool
	// ListenPort is the UDP port for direct paths. 0 means any.
	ListenPort uint16
	// SendBuffer and RecvBuffer limit what one TCP connection keeps in flight, in bytes. They also limit its speed to
	// buffer divided by round-trip time. A byte in flight costs up to 50 bytes of memory. 0 means 1 MiB and 2 MiB.
	SendBuffer, RecvBuffer int
	// Revived is called when a watched peer is heard from again after a silence, and after a Rebind. It must not block.
	// It may be nil.
	Revived func()
	// TLS is for relays that are reached over https. Nil means the system's authorities and no client certificate.
	TLS *tls.Config
}

// Node is one participant of the mesh: see the package documentation. All methods are safe for concurrent use. A
// process has few nodes: each costs a megabyte and some 36 goroutines.
type Node struct {
	// Constant after New.
	id      uuid.UUID
	addr    netip.Addr
	public  PublicKey
	streams int // the version of the stream protocol, 0 for none
	disco   DiscoKey
	opts    Options
	log     *slog.Logger
	ctx     context.Context // ends when Close begins
	cancel  context.CancelFunc
	engine  *engine.Engine

	peers   *peerTable
	changed notify.Wake

	// Accessed without a lock.
	tcpHandler atomic.Pointer[func(src, dst netip.AddrPort) (func(net.Conn), bool)]
	udpHandler atomic.Pointer[func(src, dst netip.AddrPort) (func(net.Conn), bool)]
	closed     atomic.Bool
	rebinds    atomic.Uint64
	relayOnly  atomic.Bool // as the relay map says

	// Serializes changes of the peer set. Acquired before the engine's own locks.
	peerOps sync.Mutex

	// What Info returns.
	infoMu sync.Mutex
	info   NodeInfo
	asked  time.Time // when the engine was last asked to measure the network

	relays relays

	listenersMu sync.Mutex
	listeners   map[uint16]*listener

	handlersMu sync.Mutex // ensures that closed is set before Wait
	handlers   sync.WaitGroup

	background sync.WaitGroup
	closeOnce  sync.Once
}

// New creates a node. It has sockets and a key, but no relays or peers yet.
func New(opts Options) (*Node, error) {
	n, err := newNode(opts, realClock())
	if err != nil {
		return nil, fmt.Errorf("create mesh node: %w", err)
	}
	return n, nil
}

func newNode(opts Options, clock clock) (*Node, error) {
	if opts.ID == uuid.Nil {
		return nil, errors.New("id is required")
	}
	if opts.SendBuffer < 0 || opts.RecvBuffer < 0 {
		return nil, errors.New("buffers cannot be negative")
	}
	if opts.Key.IsZero() {
		opts.Key = NewPrivateKey()
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	n := &Node{
		id: opts.ID, addr: Addr(opts.ID), public: opts.Key.Public(), opts: opts,
		log: log.With("node", opts.ID), peers: newPeerTable(), changed: notify.NewWake(),
		listeners: make(map[uint16]*listener), streams: streamsVersion(),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.info = NodeInfo{ID: n.id, Key: n.public, Seq: 1, Streams: n.streams}
	var err error
	n.engine, err = engine.New(engine.Options{
		Key: opts.Key, Addr: n.addr, Name: n.id.String(), Log: n.log, RelayOnly: opts.RelayOnly,
		ListenPort: opts.ListenPort,
		TLS:        opts.TLS, SendBuffer: opts.SendBuffer, RecvBuffer: opts.RecvBuffer,
		Admit: n.admits, AdmitEcho: n.admitsEcho, AcceptTCP: n.tcpFlow, AcceptUDP: n.udpFlow,
		Session: n.sessionChanged, Endpoints: n.endpointsChanged, Home: n.homeChanged, Moved: n.moved,
	})
	if err != nil {
		n.cancel()
		return nil, err
	}
	n.disco = n.engine.Disco()
	n.info.Disco = n.disco
	if err := n.engine.Start(); err != nil {
		n.cancel()
		return nil, errors.Join(err, n.engine.Close())
	}
	n.background.Go(func() { n.watch(clock) })
	n.background.Go(n.watchdog)
	return n, nil
}

func (n *Node) ID() uuid.UUID        { return n.id }
func (n *Node) Addr() netip.Addr     { return n.addr }
func (n *Node) PublicKey() PublicKey { return n.public }

// Info returns what peers must currently know to reach the node.
func (n *Node) Info() NodeInfo {
	n.infoMu.Lock()
	defer n.infoMu.Unlock()
	info := n.info
	info.Endpoints = slices.Clone(info.Endpoints)
	return info
}

// Changed returns a channel that receives after Info changes. Several changes may be coalesced into one receive.
func (n *Node) Changed() <-chan struct{} { return n.changed }

// updateInfo applies change and notifies Changed if it altered anything.
func (n *Node) updateInfo(change func(*NodeInfo)) {
	n.infoMu.Lock()
	next := n.info
	change(&next)
	same := next.Region == n.info.Region && next.Moves == n.info.Moves && next.Measured == n.info.Measured &&
		next.Mapped == n.info.Mapped && slices.Equal(next.Endpoints, n.info.Endpoints)
	if !same {
		next.Seq++
		n.info = next
	}
	n.infoMu.Unlock()
	if same {
		return
	}
	n.changed.Poke()
}

// SetOnline sets whether the coordinator is currently reachable. While a node cannot tell its peers about a new home
// relay, it keeps the old one. A new node is online.
func (n *Node) SetOnline(online bool) { n.engine.SetOnline(online) }

// Close ends all connections, waits up to 0.4 seconds for peers to notice, and then waits until everything in the node
// has stopped, handlers included. It is safe to call more than once.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		n.handlersMu.Lock()
		n.closed.Store(true)
		n.handlersMu.Unlock()

		n.listenersMu.Lock()
		var open []*listener
		for _, l := range n.listeners {
			open = append(open, l)
		}
		n.listenersMu.Unlock()
		for _, l := range open {
			l.Close()
		}
		n.partFromPeers()
		n.cancel()
		n.handlers.Wait()
		n.background.Wait()
		if err := n.engine.Close(); err != nil {
			n.log.Warn("cannot close the mesh engine", "err", err)
		}
	})
	return nil
}

// parting is how long Close waits for peers. It is longer than the first retransmission of a lost packet takes.
const parting = 400 * time.Millisecond

// partFromPeers ends all connections so that the peers notice. An open connection is shut down and then drained until
// the peer shuts it down too. A connection that was closed just now cannot be checked; but a peer that answers a later
// packet has most likely received the earlier ones.
func (n *Node) partFromPeers() {
	n.peerOps.Lock() // no peer is introduced after this: Upsert sees closed
	rows := n.peers.all()
	n.peerOps.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	var waiting sync.WaitGroup
	for _, p := range rows {
		if established, _ := p.live.established(); established {
			for _, c := range p.live.openTCP() {
				waiting.Go(func() { c.shut(time.Now().Add(parting)) })
			}
			if p.live.closedJustNow() && !p.WireGuardOnly {
				waiting.Go(func() { n.knock(ctx, p) })
			}
		}
	}
	waiting.Wait()
	for _, p := range rows {
		p.live.end()
	}
}

// knock sends a packet through the tunnel and waits for the answer. Only a peer that lets this node open some port
// answers.
func (n *Node) knock(ctx context.Context, p *peer) {
	answer := make(chan struct{}, 1)
	n.engine.Echo(p.addr, func() { answer <- struct{}{} })
	select {
	case <-answer:
	case <-ctx.Done():
	}
}
