// Package wggateway lets devices with a stock WireGuard app into workspaces: phones, tablets, other people's routers.
//
//	device ── WireGuard ── this package (tailnet/wireguard) ── mesh ── agent
//
// A device's key says whose it is (package devices). Everything that it opens is asked about with its user's rights, as in coder port-forward: the
// same users may connect, the log of connections has them, and what is open ends when its user may no longer connect.
//
// # What a device reaches
//
// Addresses of the mesh only. TCP and UDP ports of workspaces that its user may connect to, but for the ports of the agent's own services; TCP
// port 22 is the agent's SSH, so that shells are encrypted up to the workspace. The gateway's own address answers questions about names (see
// names), and nothing else. Everything else is refused as if there was nothing: workspaces of others, other devices, servers, provisioners.
//
// # What the gateway sees
//
// All that passes, except within SSH and other encrypted protocols, as the server's apps do.
package wggateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/devices"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
)

const (
	// askTimeout bounds the questions to the database about one connection, packet or name.
	askTimeout = 10 * time.Second
	// storeTimeout bounds one report of where devices are.
	storeTimeout = 5 * time.Second
	// maxStrangers is how many addresses may wait to be asked about.
	maxStrangers = 64
	// verdictLife is how long it counts that a device may connect to an agent. A revocation ends it.
	verdictLife = 2 * time.Second
	// maxVerdicts bounds the verdicts that are kept: as many as devices and workspaces that they use at a time.
	maxVerdicts = 4096
	// sessionLife is how long a device may still use a session of an earlier process: WireGuard's REJECT_AFTER_TIME.
	sessionLife = 3 * time.Minute
)

// Options are what a gateway needs. All are required, except the logger.
type Options struct {
	Logger      *slog.Logger
	PrivateKey  [32]byte // the same at every server of the deployment
	Devices     Devices
	Accounts    Accounts
	Agents      Agents
	Mesh        Mesh
	Connections *audit.Connections
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are refused.
	Resolvers func() ([]string, error)
}

// Devices are the devices of users.
type Devices interface {
	// Active returns the devices of a user that may connect, or those of all users for uuid.Nil.
	Active(ctx context.Context, user uuid.UUID) ([]devices.Device, error)
	AtEndpoint(ctx context.Context, endpoint netip.AddrPort) ([]devices.Device, error)
	Left(ctx context.Context, since time.Duration) ([]devices.Device, error)
	Seen(ctx context.Context, sightings []devices.Sighting) error
}

// Accounts are the users.
type Accounts interface {
	// Actor returns the user with their current rights, or fault.Unauthenticated.
	Actor(ctx context.Context, user uuid.UUID) (rbac.Actor, error)
}

// Agents decides who may connect to which agent.
type Agents interface {
	ByName(ctx context.Context, user uuid.UUID, name string) (uuid.UUID, error)
	MayConnect(ctx context.Context, actor rbac.Actor, agent uuid.UUID) error
	// Host returns the name of an agent as a host.
	Host(ctx context.Context, user, agent uuid.UUID) (string, error)
}

// Mesh reaches agents.
type Mesh interface {
	DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
	DialAgentUDP(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
	// CallingAgent returns the agent that holds a mesh address.
	CallingAgent(addr netip.Addr) (uuid.UUID, bool)
}

// Gateway is the WireGuard gateway of a server. Make one with New. It is safe for concurrent use.
type Gateway struct {
	opts  Options
	log   *slog.Logger
	names *names

	run    context.Context // ends with Stop
	cancel context.CancelCauseFunc

	strangers chan netip.AddrPort
	syncing   sync.Mutex // one comparison with the database at a time; held while asking it

	serving sync.WaitGroup // flows, and the work in the background; grows while stopped is false

	mu      sync.Mutex // guards the fields below
	stopped bool
	wire    *wireguard.Gateway
	devices map[netip.Addr]*device
	flows   map[*flow]struct{}
	records map[recordKey]*record
	// verdicts count until the time. One that was asked for before a revocation, in an earlier generation, is not kept.
	verdicts   map[verdictKey]time.Time
	generation uint64
}

// device is a device that may connect now. Gateway.mu guards its endpoint.
type device struct {
	devices.Device
	endpoint netip.AddrPort
}

// flow is a connection or flow of a device to an agent.
type flow struct {
	device *device
	agent  uuid.UUID
	end    context.CancelCauseFunc
}

// New returns a gateway that does not listen. The caller must stop it.
func New(opts Options) *Gateway {
	g := &Gateway{
		opts: opts, log: opts.Logger, strangers: make(chan netip.AddrPort, maxStrangers),
		devices: map[netip.Addr]*device{}, flows: map[*flow]struct{}{}, records: map[recordKey]*record{}, verdicts: map[verdictKey]time.Time{},
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.run, g.cancel = context.WithCancelCause(context.Background())
	g.names = newNames(g)
	return g
}

// Start listens at a UDP port, on all addresses of the machine. 0 means any. It begins new sessions with the devices of the process that this one
// replaces: what they send in their old ones is lost, and programs repeat the beginning of a connection only after a second.
func (g *Gateway) Start(ctx context.Context, port uint16) error {
	wire, err := wireguard.New(wireguard.Options{
		PrivateKey: g.opts.PrivateKey, Port: port, Addr: devices.GatewayAddr, Prefix: tailnet.Prefix, Logger: g.log,
		AcceptTCP: g.acceptTCP, AcceptUDP: g.acceptUDP, Echo: g.echo, Seen: g.seen, Stranger: g.stranger,
	})
	if err != nil {
		return fmt.Errorf("serve WireGuard: %w", err)
	}
	g.mu.Lock()
	stopped := g.stopped
	if !stopped {
		g.wire = wire
		g.serving.Go(g.wake)
	}
	g.mu.Unlock()
	if stopped {
		wire.Close()
		return errStopped
	}
	g.log.InfoContext(ctx, "serving WireGuard devices", "addr", fmt.Sprintf(":%d", wire.Port()))
	if err := g.Recheck(ctx, uuid.Nil); err != nil {
		return err
	}
	left, err := g.opts.Devices.Left(ctx, sessionLife)
	if err != nil {
		return err
	}
	for _, d := range left {
		g.handshake(wire, d, d.Endpoint)
	}
	return nil
}

// handshake begins one with a device that is believed to be at an address.
func (g *Gateway) handshake(wire *wireguard.Gateway, d devices.Device, at netip.AddrPort) {
	if err := wire.Wake(d.Key, at); err != nil {
		g.log.Debug("cannot begin a handshake with device", "device", d.ID, "err", err)
	}
}

func (g *Gateway) listening() *wireguard.Gateway {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wire
}

// Stop ends every connection, and waits for them. It is idempotent.
func (g *Gateway) Stop() {
	g.mu.Lock()
	wire := g.wire
	g.wire, g.stopped = nil, true
	g.mu.Unlock()
	g.cancel(errStopped)
	if wire != nil {
		wire.Close()
	}
	g.serving.Wait()
	g.endRecords()
}

// Why connections end, besides the device's closing them.
var (
	errStopped = errors.New("the server stopped")
	errRevoked = errors.New("the user may no longer connect")
)

// Recheck compares the devices of a user, or of all users if it is uuid.Nil, with the database, and ends their connections that they may no longer
// have. It returns an error if that could not be found out for some.
func (g *Gateway) Recheck(ctx context.Context, user uuid.UUID) error {
	wire := g.listening()
	if wire == nil {
		return nil
	}
	g.mu.Lock()
	g.generation++
	clear(g.verdicts)
	g.mu.Unlock()
	err := g.sync(ctx, wire, user)
	for _, f := range g.open(user) {
		refused := g.admit(ctx, f.device, f.agent)
		switch code := fault.CodeOf(refused); {
		case refused == nil:
		case code == fault.Unauthenticated || code == fault.Forbidden || code == fault.NotFound || code == fault.Conflict:
			f.end(errRevoked)
		default:
			err = refused
		}
	}
	return err
}

// sync makes the devices of a user, or of all users if it is uuid.Nil, those of the database.
func (g *Gateway) sync(ctx context.Context, wire *wireguard.Gateway, user uuid.UUID) error {
	g.syncing.Lock()
	defer g.syncing.Unlock()
	active, err := g.opts.Devices.Active(ctx, user)
	if err != nil {
		return err
	}
	var (
		peers  []wireguard.Peer
		gone   []wireguard.Key
		listed = make(map[netip.Addr]bool, len(active))
	)
	g.mu.Lock()
	for _, d := range active {
		addr := d.Addr()
		listed[addr] = true
		peers = append(peers, wireguard.Peer{Key: d.Key, Addr: addr})
		if before := g.devices[addr]; before != nil && before.Device.Key == d.Key && before.UserID == d.UserID && before.Name == d.Name {
			continue // it may have connections
		}
		g.devices[addr] = &device{Device: d, endpoint: d.Endpoint}
	}
	for addr, d := range g.devices {
		if (user == uuid.Nil || d.UserID == user) && !listed[addr] {
			gone = append(gone, d.Device.Key)
			delete(g.devices, addr)
		}
	}
	g.mu.Unlock()
	wire.Remove(gone...)
	return wire.Set(peers...)
}

// device returns the device with an address, nil if there is none.
func (g *Gateway) device(addr netip.Addr) *device {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.devices[addr]
}

// open returns the flows of a user, or all.
func (g *Gateway) open(user uuid.UUID) (open []*flow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for f := range g.flows {
		if user == uuid.Nil || f.device.UserID == user {
			open = append(open, f)
		}
	}
	return open
}

// admit returns an error unless a device may connect to an agent.
func (g *Gateway) admit(ctx context.Context, d *device, agent uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if now := g.device(d.Addr()); now == nil || now.Device.Key != d.Key {
		return fault.New(fault.Unauthenticated, "The device was removed.")
	}
	actor, err := g.opts.Accounts.Actor(ctx, d.UserID)
	if err != nil {
		return err
	}
	return g.opts.Agents.MayConnect(ctx, actor, agent)
}

// seen stores where devices are.
func (g *Gateway) seen(news []wireguard.Sighting) {
	var sightings []devices.Sighting
	g.mu.Lock()
	byKey := make(map[wireguard.Key]wireguard.Sighting, len(news))
	for _, s := range news {
		byKey[s.Key] = s
	}
	now := time.Now()
	for _, d := range g.devices {
		if s, ok := byKey[d.Device.Key]; ok {
			d.endpoint = s.Endpoint
			sightings = append(sightings, devices.Sighting{Device: d.ID, Endpoint: s.Endpoint, At: now})
		}
	}
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(g.run, storeTimeout)
	defer cancel()
	if err := g.opts.Devices.Seen(ctx, sightings); err != nil && g.run.Err() == nil {
		g.log.Warn("cannot store where devices are", "err", err)
	}
}

// stranger hears of a session that this server does not know. It does not block.
func (g *Gateway) stranger(at netip.AddrPort) {
	select {
	case g.strangers <- at:
	default: // too many: the device comes back later
	}
}

// wake begins handshakes with devices that have a session of an earlier process, or of another server, until the gateway stops. Anyone can make it
// ask the database, a few times in a second, and send a handshake to where a device was: the device's own packets do the same.
func (g *Gateway) wake() {
	for {
		select {
		case at := <-g.strangers:
			if err := g.wakeAt(at); err != nil && g.run.Err() == nil {
				g.log.Warn("cannot ask which device an address has", "err", err)
			}
		case <-g.run.Done():
			return
		}
	}
}

func (g *Gateway) wakeAt(at netip.AddrPort) error {
	ctx, cancel := context.WithTimeout(g.run, askTimeout)
	defer cancel()
	there, err := g.opts.Devices.AtEndpoint(ctx, at)
	wire := g.listening()
	if err != nil || wire == nil {
		return err
	}
	for _, d := range there {
		g.handshake(wire, d, at)
	}
	return nil
}

// verdictKey is a device that may connect to an agent.
type verdictKey struct{ device, agent uuid.UUID }

// may returns an error unless a device may connect to an agent, as admit says or has said within verdictLife. Refusals are not kept: whom a workspace
// was just shared with need not wait.
func (g *Gateway) may(ctx context.Context, d *device, agent uuid.UUID) error {
	key, now := verdictKey{d.ID, agent}, time.Now()
	g.mu.Lock()
	until := g.verdicts[key]
	generation := g.generation
	g.mu.Unlock()
	if now.Before(until) {
		return nil
	}
	if err := g.admit(ctx, d, agent); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.verdicts) >= maxVerdicts {
		clear(g.verdicts)
	}
	if g.generation == generation {
		g.verdicts[key] = now.Add(verdictLife)
	}
	return nil
}

// echo reports whether a workspace answers a device's echo requests.
func (g *Gateway) echo(src, dst netip.Addr) bool {
	d := g.device(src)
	agent, ok := g.opts.Mesh.CallingAgent(dst)
	return ok && d != nil && g.may(g.run, d, agent) == nil
}

// reach returns the device and the agent that a flow is between, and records the flow. The flow's context ends with the flow.
func (g *Gateway) reach(src, dst netip.AddrPort) (f *flow, life context.Context, err error) {
	d := g.device(src.Addr())
	if d == nil {
		return nil, nil, fault.New(fault.Unauthenticated, "The device was removed.")
	}
	agent, ok := g.opts.Mesh.CallingAgent(dst.Addr())
	if !ok {
		return nil, nil, fault.New(fault.NotFound, "No agent has the address %s.", dst.Addr())
	}
	life, end := context.WithCancelCause(g.run)
	f = &flow{d, agent, end}
	if !g.enter() {
		end(nil)
		return nil, nil, errStopped
	}
	// Record before admitting: either a revocation finds the flow, or the check finds the revocation.
	g.mu.Lock()
	g.flows[f] = struct{}{}
	g.mu.Unlock()
	if err := g.may(life, d, agent); err != nil {
		g.forget(f)
		return nil, nil, err
	}
	return f, life, nil
}

func (g *Gateway) forget(f *flow) {
	g.mu.Lock()
	delete(g.flows, f)
	g.mu.Unlock()
	f.end(nil)
	g.serving.Done()
}

// enter counts something that Stop waits for, until serving.Done is called. It returns false if the gateway has stopped.
func (g *Gateway) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.stopped {
		g.serving.Add(1)
	}
	return !g.stopped
}

// refuse logs why a device gets a reset.
func (g *Gateway) refuse(src, dst netip.AddrPort, err error) {
	if f := fault.As(err); f == nil && g.run.Err() == nil {
		g.log.Error("cannot connect device", "device", src.Addr(), "to", dst, "err", err)
		return
	}
	g.log.Debug("device refused", "device", src.Addr(), "to", dst, "err", err)
}

// errPort is the reason why a port is refused.
var errPort = fault.New(fault.Forbidden, "The port is not the workspace's.")

func (g *Gateway) acceptTCP(src, dst netip.AddrPort) func(wireguard.Conn) {
	if dst.Addr() == devices.GatewayAddr {
		if dst.Port() != meshdns.Port {
			return nil
		}
		return func(c wireguard.Conn) {
			if c != nil {
				g.names.serveTCP(c, src.Addr())
			}
		}
	}
	if meshport.Reserved(dst.Port()) {
		g.refuse(src, dst, errPort)
		return nil
	}
	f, life, err := g.reach(src, dst)
	if err != nil {
		g.refuse(src, dst, err)
		return nil
	}
	conn, err := g.opts.Mesh.DialAgent(life, f.agent, dst.Port())
	if err != nil {
		g.forget(f)
		g.refuse(src, dst, err)
		return nil
	}
	return func(c wireguard.Conn) {
		if c == nil {
			conn.Close()
			g.forget(f)
			return
		}
		g.carryTCP(life, f, dst.Port(), c, conn)
	}
}

func (g *Gateway) acceptUDP(src, dst netip.AddrPort) func(net.Conn) {
	if dst.Addr() == devices.GatewayAddr {
		if dst.Port() != meshdns.Port {
			return nil
		}
		return func(c net.Conn) { g.names.serveUDP(c, src.Addr()) }
	}
	f, life, err := g.reach(src, dst)
	if err != nil {
		g.refuse(src, dst, err)
		return nil
	}
	conn, err := g.opts.Mesh.DialAgentUDP(life, f.agent, dst.Port())
	if err != nil {
		g.forget(f)
		g.refuse(src, dst, err)
		return nil
	}
	return func(c net.Conn) { g.carryUDP(life, f, dst.Port(), c, conn) }
}
