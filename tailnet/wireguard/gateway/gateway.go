// Package gateway lets devices with a stock WireGuard app into workspaces: phones, tablets, other people's routers.
// Servers and regions serve it, and their House decides.
//
//	device ── WireGuard ── wireguard.Gateway ── this package ── House ── mesh ── agent
//
// A device's key says which one it is. Everything that it opens is asked about, and what is open ends when its user may
// no longer connect.
//
// # What a device reaches
//
// Addresses of the mesh only: TCP and UDP ports of workspaces that the House lets it reach, but for TCP ports of the
// agent's own services. TCP port 22 is the agent's SSH, so that shells are encrypted up to the workspace. The gateway's
// own address answers questions about names (see names), and nothing else. Everything else is refused as if there was
// nothing: workspaces of others, other devices, servers, provisioners.
//
// # What the gateway sees
//
// All that passes, except within SSH and other encrypted protocols, as apps of a server or a region do.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard"
)

const (
	// askTimeout bounds the questions about one address.
	askTimeout = 10 * time.Second
	// storeTimeout bounds one report of where devices are.
	storeTimeout = 5 * time.Second
	// maxStrangers is how many addresses may wait to be asked about.
	maxStrangers = 64
	// answerTime is how long Load waits for devices to answer. Those that are there do so within a round trip, which
	// takes less on most networks.
	answerTime = 100 * time.Millisecond
	// answerEvery is how often it looks.
	answerEvery = 2 * time.Millisecond
)

// Addr is the gateway's own address in the tunnel of every device. It is the same everywhere and never changes: devices
// keep it in their configurations, as their name server. It derives from a name, so that no node has it.
var Addr = tailnet.Addr(uuid.NewSHA1(uuid.Nil, []byte("codermesh wireguard gateway")))

// Device is a device that may connect.
type Device struct {
	ID   uuid.UUID
	User uuid.UUID // whose it is; Nil if the House does not know
	Name string
	Key  wireguard.Key
	// Endpoint is where a gateway saw it last; zero: nowhere. Left says that it may still have a session of an earlier
	// process of this gateway.
	Endpoint netip.AddrPort
	Left     bool
}

// Addr returns the device's address in the mesh.
func (d Device) Addr() netip.Addr { return tailnet.Addr(d.ID) }

// Canonical returns the one form of an endpoint: sockets for both versions of IP call an IPv4 address by its IPv6 form.
func Canonical(endpoint netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
}

// Sighting is where and when a gateway saw a device.
type Sighting struct {
	Device   uuid.UUID      `json:"device"`
	Endpoint netip.AddrPort `json:"endpoint"`
	At       time.Time      `json:"at"`
}

// Destination is a port of a mesh address.
type Destination struct {
	Network string // tcp or udp
	Addr    netip.AddrPort
}

// House is what a gateway serves. Its methods may be called at the same time. Their errors for a device that may not
// connect, or for an address that no agent has, are the faults Unauthenticated, Forbidden, NotFound and Conflict.
type House interface {
	// Devices returns the devices of a user that may connect, or those of all users for uuid.Nil.
	Devices(ctx context.Context, user uuid.UUID) ([]Device, error)
	// AtEndpoint returns the devices that may connect and were last seen at an address and port.
	AtEndpoint(ctx context.Context, endpoint netip.AddrPort) ([]Device, error)
	// Seen stores where devices are.
	Seen(ctx context.Context, sightings []Sighting) error
	// MayReach returns an error unless a device may connect to the agent with an address.
	MayReach(ctx context.Context, d Device, addr netip.Addr) error
	// Find returns the address of the agent that a name means to a device.
	Find(ctx context.Context, d Device, name string) (netip.Addr, error)
	// Host returns the name of the agent with an address.
	Host(ctx context.Context, d Device, addr netip.Addr) (string, error)
	// Open connects a device to a port. The caller must end the session. ctx ends with it.
	Open(ctx context.Context, d Device, to Destination) (Session, error)
}

// Session is an open connection or flow of a device.
type Session interface {
	// Context ends with the session, or when the device's user may no longer connect.
	Context() context.Context
	// Check returns an error if the device may no longer connect, or if that cannot be found out.
	Check(ctx context.Context) error
	// Begin returns the workspace's end, which counts what passes. It is called at most once, when the device's end is
	// there.
	Begin() net.Conn
	// End ends the session, and closes its connection unless Begin has returned it. cause is nil if one of the two ends
	// closed it. The first call counts.
	End(cause error)
}

// Options are what a gateway needs. All are required, except the logger.
type Options struct {
	Logger     *slog.Logger
	PrivateKey wireguard.Key // the same at every process that devices know as this gateway
	House      House
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are
	// refused.
	Resolvers func() ([]string, error)
}

// Gateway serves devices. Make one with New. It is safe for concurrent use.
type Gateway struct {
	opts  Options
	log   *slog.Logger
	names *names

	answerTime time.Duration // the constant, but in tests

	run    context.Context // ends with Stop
	cancel context.CancelCauseFunc

	strangers chan netip.AddrPort
	syncing   sync.Mutex // one comparison of the devices with the House's at a time; held while asking it

	serving sync.WaitGroup // flows, and the work in the background; grows while stopped is false

	mu      sync.Mutex // guards the fields below
	stopped bool
	wire    *wireguard.Gateway
	devices map[netip.Addr]*device
	flows   map[*flow]struct{}
}

// device is a device that may connect now. Gateway.mu guards its Endpoint and the field below.
type device struct {
	Device
	located bool // the Endpoint is where this process has seen it
}

// flow is a connection or flow of a device. Gateway.mu guards the last three fields.
type flow struct {
	device *device
	end    context.CancelCauseFunc

	session  Session     // nil while it is opened
	unfollow func() bool // the session's end ends the flow until this is called
	stale    bool        // its user may have lost the right to it meanwhile
}

// New returns a gateway that does not listen. The caller must stop it.
func New(opts Options) *Gateway {
	g := &Gateway{
		opts: opts, log: opts.Logger, strangers: make(chan netip.AddrPort, maxStrangers),
		devices: map[netip.Addr]*device{}, flows: map[*flow]struct{}{}, answerTime: answerTime,
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	g.run, g.cancel = context.WithCancelCause(context.Background())
	g.names = newNames(g)
	return g
}

// Listen listens at a UDP port, on all addresses of the machine. 0 means any. No device can connect before Load.
func (g *Gateway) Listen(ctx context.Context, port uint16) error {
	wire, err := wireguard.New(wireguard.Options{
		PrivateKey: g.opts.PrivateKey, Port: port, Addr: Addr, Prefix: tailnet.Prefix, Logger: g.log,
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
	return nil
}

// Load lets the devices in. It begins new sessions with those of the process that this one replaces: what they send in
// their old ones is lost, and programs repeat the beginning of a connection only after a second. So it also waits until
// those devices have answered, for a tenth of a second at most: some are switched off.
func (g *Gateway) Load(ctx context.Context) error {
	if err := g.Recheck(ctx, uuid.Nil); err != nil {
		return err
	}
	wire, left := g.listening(), g.left()
	if wire == nil || len(left) == 0 {
		return nil
	}
	keys := make([]wireguard.Key, 0, len(left))
	for _, d := range left {
		g.handshake(wire, d, d.Endpoint)
		keys = append(keys, d.Key)
	}
	late := time.NewTimer(g.answerTime)
	defer late.Stop()
	look := time.NewTicker(answerEvery)
	defer look.Stop()
	for !wire.Answered(keys...) {
		select {
		case <-look.C:
		case <-late.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// left returns the devices that an earlier process of this gateway had.
func (g *Gateway) left() (left []Device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.devices {
		if d.Left {
			left = append(left, d.Device)
		}
	}
	return left
}

// handshake begins one with a device that is believed to be at an address.
func (g *Gateway) handshake(wire *wireguard.Gateway, d Device, at netip.AddrPort) {
	if err := wire.Wake(d.Key, at); err != nil {
		g.log.Debug("cannot begin a handshake with device", "device", d.ID, "err", err)
	}
}

// Port returns the UDP port that the gateway listens at, 0 before Listen and after Stop.
func (g *Gateway) Port() uint16 {
	if wire := g.listening(); wire != nil {
		return wire.Port()
	}
	return 0
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
}

// Why connections end, besides the device's closing them.
var (
	errStopped = errors.New("the gateway stopped")
	errRevoked = errors.New("the user may no longer connect")
)

// Recheck compares the devices of a user, or of all users if it is uuid.Nil, with the House's, and ends their
// connections that they may no longer have. It returns an error if that could not be found out for some.
func (g *Gateway) Recheck(ctx context.Context, user uuid.UUID) error {
	wire := g.listening()
	if wire == nil {
		return nil
	}
	err := g.sync(ctx, wire, user)
	for _, f := range g.open(user) {
		if failed := g.check(ctx, f); failed != nil {
			err = failed
		}
	}
	return err
}

// check ends a flow that its device may no longer have. It returns an error if that could not be found out.
func (g *Gateway) check(ctx context.Context, f *flow) error {
	g.mu.Lock()
	session, known := f.session, g.devices[f.device.Addr()] == f.device
	f.stale = f.stale || session == nil
	g.mu.Unlock()
	switch {
	case !known:
		f.end(errRevoked)
		return nil
	case session == nil:
		return nil // who opens it checks it
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := session.Check(ctx)
	switch fault.CodeOf(err) {
	case fault.Unauthenticated, fault.Forbidden, fault.NotFound, fault.Conflict:
		f.end(errRevoked)
		return nil
	}
	return err
}

// sync makes the devices of a user, or of all users if it is uuid.Nil, those of the House.
func (g *Gateway) sync(ctx context.Context, wire *wireguard.Gateway, user uuid.UUID) error {
	g.syncing.Lock()
	defer g.syncing.Unlock()
	active, err := g.opts.House.Devices(ctx, user)
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
		if before := g.devices[addr]; before != nil && before.Key == d.Key && before.User == d.User &&
			before.Name == d.Name {
			continue // it may have connections
		}
		g.devices[addr] = &device{Device: d}
	}
	for addr, d := range g.devices {
		if (user == uuid.Nil || d.User == user) && !listed[addr] {
			gone = append(gone, d.Key)
			delete(g.devices, addr)
		}
	}
	for _, d := range g.devices { // a key that is another device's now: Set resets what was open
		gone = slices.DeleteFunc(gone, func(key wireguard.Key) bool { return key == d.Key })
	}
	g.mu.Unlock()
	wire.Remove(gone...)
	return wire.Set(peers...)
}

// device returns the device with an address, as it is now, and nil if there is none.
func (g *Gateway) device(addr netip.Addr) (*device, Device) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d := g.devices[addr]
	if d == nil {
		return nil, Device{}
	}
	return d, d.Device
}

// locate is device, with the Endpoint where the device is and not where it was yesterday: what it opens is logged with
// that.
func (g *Gateway) locate(addr netip.Addr) (*device, Device) {
	known, d := g.device(addr)
	wire := g.listening()
	if known == nil || wire == nil {
		return nil, Device{}
	}
	g.mu.Lock()
	located := known.located
	g.mu.Unlock()
	if located {
		return known, d
	}
	at, ok := wire.Endpoint(d.Key)
	g.mu.Lock()
	defer g.mu.Unlock()
	if ok && !known.located {
		known.Endpoint, known.located = at, true
	}
	return known, known.Device
}

// open returns the flows of a user, or all.
func (g *Gateway) open(user uuid.UUID) (open []*flow) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for f := range g.flows {
		if user == uuid.Nil || f.device.User == user {
			open = append(open, f)
		}
	}
	return open
}

// seen stores where devices are.
func (g *Gateway) seen(news []wireguard.Sighting) {
	var sightings []Sighting
	g.mu.Lock()
	byKey := make(map[wireguard.Key]wireguard.Sighting, len(news))
	for _, s := range news {
		byKey[s.Key] = s
	}
	now := time.Now()
	for _, d := range g.devices {
		if s, ok := byKey[d.Key]; ok {
			d.Endpoint, d.located = s.Endpoint, true
			sightings = append(sightings, Sighting{d.ID, s.Endpoint, now})
		}
	}
	g.mu.Unlock()
	if len(sightings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(g.run, storeTimeout)
	defer cancel()
	if err := g.opts.House.Seen(ctx, sightings); err != nil && g.run.Err() == nil {
		g.log.Warn("cannot store where devices are", "err", err)
	}
}

// stranger hears of a session that this gateway does not know. It does not block.
func (g *Gateway) stranger(at netip.AddrPort) {
	select {
	case g.strangers <- at:
	default: // too many: the device comes back later
	}
}

// wake begins handshakes with devices that have a session of an earlier process, or of another server, until the
// gateway stops. Anyone can make it ask the House, a few times in a second, and send a handshake to where a device was:
// the device's own packets do the same.
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
	there, err := g.opts.House.AtEndpoint(ctx, at)
	wire := g.listening()
	if err != nil || wire == nil {
		return err
	}
	for _, d := range there {
		g.handshake(wire, d, at)
	}
	return nil
}

// echo reports whether a workspace answers a device's echo requests.
func (g *Gateway) echo(src, dst netip.Addr) bool {
	known, d := g.device(src)
	if known == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(g.run, askTimeout)
	defer cancel()
	return g.opts.House.MayReach(ctx, d, dst) == nil
}

// reach opens a session between a device and a port, and records it. The flow's context ends with it.
func (g *Gateway) reach(network string, src, dst netip.AddrPort) (f *flow, life context.Context, err error) {
	known, d := g.locate(src.Addr())
	if known == nil {
		return nil, nil, fault.New(fault.Unauthenticated, "The device was removed.")
	}
	life, end := context.WithCancelCause(g.run)
	f = &flow{device: known, end: end}
	if !g.enter() {
		end(nil)
		return nil, nil, errStopped
	}
	// Record before asking: either a revocation finds the flow, or the question finds the revocation.
	g.mu.Lock()
	g.flows[f] = struct{}{}
	g.mu.Unlock()
	session, err := g.opts.House.Open(life, d, Destination{network, dst})
	if err != nil {
		g.forget(f)
		return nil, nil, err
	}
	unfollow := context.AfterFunc(session.Context(), func() { end(context.Cause(session.Context())) })
	g.mu.Lock()
	f.session, f.unfollow = session, unfollow
	stale := f.stale
	g.mu.Unlock()
	if stale {
		if err := g.check(life, f); err != nil {
			g.forget(f)
			return nil, nil, err
		}
	}
	if life.Err() != nil {
		g.forget(f)
		return nil, nil, context.Cause(life)
	}
	return f, life, nil
}

// forget ends a flow.
func (g *Gateway) forget(f *flow) {
	g.mu.Lock()
	delete(g.flows, f)
	session, unfollow := f.session, f.unfollow
	g.mu.Unlock()
	if session != nil {
		unfollow()
		session.End(nil)
	}
	f.end(nil)
	g.serving.Done()
}

// enter counts something that Stop waits for, until serving.Done is called. It returns false if the gateway has
// stopped.
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
	if dst.Addr() == Addr {
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
	f, life, err := g.reach("tcp", src, dst)
	if err != nil {
		g.refuse(src, dst, err)
		return nil
	}
	return func(c wireguard.Conn) {
		defer g.forget(f)
		if c == nil {
			return
		}
		// The device gets a reset if the agent's end breaks: there is nothing behind the port, or the user may no
		// longer connect.
		netio.Carry(life, c, f.session.Begin())
		f.session.End(context.Cause(life))
	}
}

func (g *Gateway) acceptUDP(src, dst netip.AddrPort) func(net.Conn) {
	if dst.Addr() == Addr {
		if dst.Port() != meshdns.Port {
			return nil
		}
		return func(c net.Conn) { g.names.serveUDP(c, src.Addr()) }
	}
	f, life, err := g.reach("udp", src, dst)
	if err != nil {
		g.refuse(src, dst, err)
		return nil
	}
	return func(c net.Conn) {
		defer g.forget(f)
		netio.CarryDatagrams(life, c, f.session.Begin())
		f.session.End(context.Cause(life))
	}
}
