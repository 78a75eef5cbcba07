package engine

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/tailscale/wireguard-go/device"
	"go4.org/mem"
	"tailscale.com/health"
	"tailscale.com/net/netmon"
	"tailscale.com/net/netns"
	"tailscale.com/tailcfg"
	"tailscale.com/types/key"
	"tailscale.com/types/logger"
	"tailscale.com/util/eventbus"
	"tailscale.com/util/usermetric"
	"tailscale.com/wgengine/magicsock"

	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/tailnet/engine/ipstack"
	"github.com/codermesh/codermesh/v2/tailnet/stream"
)

// TCPConn is a TCP connection with a peer, and UDPConn a UDP flow.
type (
	TCPConn = ipstack.TCPConn
	UDPConn = ipstack.UDPConn
)

// Key is a Curve25519 key, public or private, as 32 bytes.
type Key = [32]byte

// Options configures an Engine. All callbacks are required; see the package documentation for what they must not do.
type Options struct {
	Key  Key        // private
	Addr netip.Addr // the node's own address in the mesh, IPv6
	Name string     // for logs
	Log  *slog.Logger

	RelayOnly  bool        // no direct paths
	ListenPort uint16      // UDP; 0 means any
	TLS        *tls.Config // for relays; nil means the system's authorities
	// SendBuffer and RecvBuffer limit what one TCP connection keeps in flight, in bytes. 0 means 1 MiB and 2 MiB.
	SendBuffer, RecvBuffer int

	// Admit reports whether a peer may open connections and flows to a port. A peer that may not gets no answer.
	Admit func(peer netip.Addr, port uint16) bool
	// AdmitEcho reports whether a peer's ICMP echo requests are answered.
	AdmitEcho func(peer netip.Addr) bool
	// AcceptTCP and AcceptUDP return the handler of a connection or flow that a peer opens, to be run on its own
	// goroutine, or nil to refuse it. To AcceptTCP, a stream is a TCP connection.
	AcceptTCP func(src, dst netip.AddrPort) func(Conn)
	AcceptUDP func(src, dst netip.AddrPort) func(*UDPConn)

	// Session is called when a WireGuard session with a peer can be used for sending, at its first packet, and when it
	// ends.
	Session func(peer Key, established bool)
	// Endpoints is called with the addresses at which the node may be reached directly, best first.
	Endpoints func([]Endpoint)
	// Home is called when another relay has become the node's home.
	Home func(region int)
	// Moved is called when the machine's network has changed. The owner must then call Rebind.
	Moved func(networkInterface string)

	listen listenFunc // in tests; nil means the system's sockets
}

// Engine is the data path of one node. All methods are safe for concurrent use unless noted otherwise.
type Engine struct {
	opts   Options
	secret key.NodePrivate
	public key.NodePublic
	log    *slog.Logger
	logf   logger.Logf

	bus    *eventbus.Bus
	events *eventbus.Client
	health *health.Tracker
	netmon *netmon.Monitor
	udp    *sockets
	magic  *magicsock.Conn
	device *device.Device
	nic    *ipstack.Link
	tun    *tunDevice // nic as WireGuard sees it
	stack  *ipstack.Stack
	mux    *stream.Mux
	bind   *bind
	shim   *shim

	echoes echoes
	peers  table

	relayOps sync.Mutex // serializes changes of links; held while calling magicsock
	relaysMu sync.Mutex
	links    map[int]*relayLink
	relays   []Relay // nil before SetRelays

	relaysMade atomic.Uint64
	online     atomic.Bool // as SetOnline says
	measuring  atomic.Bool // even while idle
	relayOnly  atomic.Bool // as SetRelayOnly says

	linkEvents   chan netmon.ChangeDelta
	routeChanged notify.Wake   // an interface, address or route of the machine may be another one
	netlink      io.ReadCloser // what pokes routeChanged reads this; nil where the system has none
	done         chan struct{} // closed by Close
	background   sync.WaitGroup
}

// New creates an engine without peers or relays. It does nothing before Start.
func New(opts Options) (*Engine, error) {
	netns.SetEnabled(false) // sockets need no mark: this process never owns the machine's default route
	e := &Engine{
		opts: opts, log: opts.Log, logf: engineLogf(opts.Log),
		secret: key.NodePrivateFromRaw32(mem.B(opts.Key[:])), //nolint:staticcheck // there is no other way from bytes to a key
		peers:  newTable(), links: make(map[int]*relayLink), done: make(chan struct{}),
		linkEvents: make(chan netmon.ChangeDelta, 16), routeChanged: notify.NewWake(),
	}
	e.public = e.secret.Public()
	if err := e.wire(); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// wire creates the parts and connects them. The order matters: magicsock gets the key before WireGuard, whose
// handshakes may need a relay.
func (e *Engine) wire() (err error) {
	e.bus = eventbus.New()
	e.events = e.bus.Client("codermesh")
	e.health = health.NewTracker(e.bus)
	e.SetOnline(true)
	if e.netmon, err = netmon.New(e.bus, e.logf); err != nil {
		return fmt.Errorf("watch network interfaces: %w", err)
	}
	e.udp = newSockets(e.log, e.opts.listen)
	e.mux = newMux(e)
	e.nic = ipstack.NewLink(bypass{e.mux}, ipstack.MTU)
	e.nic.Admit = e.admit
	e.tun = newTUN(e.nic)
	e.magic, err = magicsock.NewConn(magicsock.Options{
		EventBus: e.bus, Logf: e.logf, Port: e.opts.ListenPort, NetMon: e.netmon, HealthTracker: e.health,
		Metrics: new(usermetric.Registry), EndpointsFunc: e.endpoints, IdleFunc: e.idle,
		TestOnlyPacketListener: e.udp,
	})
	if err != nil {
		return fmt.Errorf("open sockets: %w", err)
	}
	e.magic.SetOnlyTCP443(e.RelayOnly())
	e.magic.SetNetworkUp(e.netmon.InterfaceState().AnyInterfaceUp())
	if e.shim, err = newShim(e); err != nil {
		return fmt.Errorf("start relay shim: %w", err)
	}

	if e.stack, err = ipstack.New(e.nic, e.stackOptions()); err != nil {
		return fmt.Errorf("start network stack: %w", err)
	}

	e.bind = newBind(e)
	e.magic.SetConnectionCounter(e.bind.sent)
	e.device = device.NewDevice(e.tun, e.bind, &device.Logger{
		Verbosef: e.verbose, Errorf: e.logf,
	})
	e.device.SetPeerLookupFunc(e.lookup)
	e.device.SetPeerByIPPacketFunc(func(_, dst netip.Addr, _ []byte) (device.NoisePublicKey, bool) {
		p := e.peers.byAddr(dst)
		if p == nil {
			return device.NoisePublicKey{}, false
		}
		return device.NoisePublicKey(p.Key), true
	})
	e.device.SetSessionStateFunc(func(k device.NoisePublicKey, state device.PeerSessionState) {
		e.sessionChanged(Key(k), state == device.PeerSessionEstablished)
	})
	if err := e.magic.SetPrivateKey(e.secret); err != nil {
		return fmt.Errorf("set key: %w", err)
	}
	if err := e.device.SetPrivateKey(device.NoisePrivateKey(e.opts.Key)); err != nil {
		return fmt.Errorf("set key: %w", err)
	}
	own := []netip.Prefix{netip.PrefixFrom(e.opts.Addr, e.opts.Addr.BitLen())}
	e.magic.SetNetworkMap((&tailcfg.Node{
		ID: selfID, StableID: tailcfg.StableNodeID(e.opts.Name), Name: e.opts.Name + ".", Key: e.public,
		DiscoKey:  e.magic.DiscoPublicKey(),
		Addresses: own, AllowedIPs: own, Cap: tailcfg.CurrentCapabilityVersion,
	}).View(), nil)
	return nil
}

// stackOptions returns how the network stack is made.
func (e *Engine) stackOptions() ipstack.Options {
	return ipstack.Options{
		Addr: e.opts.Addr, SendBuffer: e.opts.SendBuffer, RecvBuffer: e.opts.RecvBuffer, Log: e.log,
		Admit: func(src, dst netip.AddrPort) bool { return e.opts.Admit(src.Addr(), dst.Port()) },
		AcceptTCP: func(src, dst netip.AddrPort) func(*TCPConn) {
			serve := e.opts.AcceptTCP(src, dst)
			if serve == nil {
				return nil
			}
			return func(c *TCPConn) {
				if c != nil {
					serve(c)
				}
			}
		},
		AcceptUDP: e.opts.AcceptUDP,
	}
}

// DialTCP connects to a peer. It blocks until the connection is established, the peer refuses it (syscall.ECONNREFUSED)
// or ctx ends.
func (e *Engine) DialTCP(ctx context.Context, to netip.AddrPort) (*TCPConn, error) {
	return e.stack.DialTCP(ctx, to)
}

// DialUDP creates a flow to a peer. It sends nothing.
func (e *Engine) DialUDP(to netip.AddrPort) (*UDPConn, error) { return e.stack.DialUDP(to) }

// Start begins receiving packets and invoking callbacks. It must be called once.
func (e *Engine) Start() error {
	if err := e.device.Up(); err != nil {
		return fmt.Errorf("start WireGuard: %w", err)
	}
	eventbus.SubscribeFunc(e.events, func(home magicsock.HomeDERPChanged) { e.homeChanged(home.Old, home.New) })
	eventbus.SubscribeFunc(e.events, func(delta netmon.ChangeDelta) {
		select {
		case e.linkEvents <- delta:
		case <-e.done:
		}
	})
	if netlink, err := watchNetlink(); err == nil {
		e.netlink = netlink
		e.background.Go(func() { e.readNetlink(netlink) })
	} else {
		e.log.Debug("cannot watch routes", "err", err)
	}
	e.background.Go(e.watchLinks)
	e.netmon.Start()
	return nil
}

// Close ends all connections and waits until everything in the engine has stopped. It must be called once, with no
// other call in progress.
func (e *Engine) Close() error {
	close(e.done)
	if e.events != nil {
		e.events.Close()
	}
	if e.netlink != nil {
		e.netlink.Close()
	}
	e.background.Wait()
	if e.nic != nil {
		e.nic.Close() // first: the stack sends a FIN on every connection and would wait for room in the queue
	}
	if e.mux != nil {
		e.mux.Close()
	}
	if e.stack != nil {
		e.stack.Close()
	}
	var errs []error
	if e.magic != nil {
		errs = append(errs, e.magic.Close())
	}
	if e.device != nil {
		e.device.Close()
	}
	e.closeRelays()
	if e.shim != nil {
		e.shim.close()
	}
	if e.netmon != nil {
		errs = append(errs, e.netmon.Close())
	}
	if e.bus != nil {
		e.bus.Close()
	}
	return errors.Join(errs...)
}

// SetOnline sets whether the node can currently inform its peers of another home relay. While it cannot, the home
// stays, and the coordinator's own relay is tried rarely.
//
// This is the only place where the engine poses as a client of a control server: magicsock asks the health tracker
// whether that client's long poll is connected.
func (e *Engine) SetOnline(online bool) {
	e.online.Store(online)
	if online {
		e.health.GotStreamedMapResponse()
	} else {
		e.health.SetOutOfPollNetMap()
	}
}

// Disco returns the public key with which peers prove direct paths. It lasts as long as the engine.
func (e *Engine) Disco() (k Key) {
	e.magic.DiscoPublicKey().AppendTo(k[:0])
	return k
}

// LocalPort returns the UDP port of direct paths.
func (e *Engine) LocalPort() uint16 { return e.magic.LocalPort() }
