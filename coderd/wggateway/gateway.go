// Package wggateway serves devices with a stock WireGuard app at this server: it is the House of
// tailnet/wireguard/gateway, with the database behind it. It answers the questions of regions that serve devices, too.
//
// A device's key says whose it is (package devices). Everything that it opens is asked about with its user's rights, as
// in coder port-forward: the same users may connect, the log of connections has them, and what is open ends when its
// user may no longer connect.
package wggateway

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/wireguard/gateway"
)

const (
	// verdictLife is how long it counts that a device may connect to an agent. A revocation ends it.
	verdictLife = 2 * time.Second
	// maxVerdicts bounds the verdicts that are kept: as many as devices and workspaces that they use at a time.
	maxVerdicts = 4096
	// askTimeout bounds the questions to the database about one connection.
	askTimeout = 10 * time.Second
)

// Options are what a gateway needs. All are required.
type Options struct {
	Logger      *slog.Logger
	PrivateKey  [32]byte // the same at every server of the deployment
	Devices     Devices
	Accounts    Accounts
	Agents      Agents
	Mesh        Mesh
	Connections *audit.Connections
	// Regions are the region proxies, RegionKey returns the private key of the gateway of one, Aliases are what they
	// call users, and Signer signs what they renew visits with.
	Regions   Regions
	RegionKey func(proxy uuid.UUID) [32]byte
	Aliases   Aliases
	Signer    Signer
	// Resolvers returns the servers to ask about names outside of the mesh, as HOST:PORT. Nil: such questions are
	// refused.
	Resolvers func() ([]string, error)
}

// Devices are the devices of users.
type Devices interface {
	// Active returns the devices of a user that connect to the servers, or those of all users for uuid.Nil.
	Active(ctx context.Context, user uuid.UUID) ([]gateway.Device, error)
	AtEndpoint(ctx context.Context, endpoint netip.AddrPort) ([]gateway.Device, error)
	Seen(ctx context.Context, sightings []gateway.Sighting) error
	// ActiveAt, FindAt and SeenAt are about the devices that connect to a region.
	ActiveAt(ctx context.Context, proxy, user uuid.UUID) ([]gateway.Device, error)
	FindAt(ctx context.Context, device, proxy uuid.UUID) (gateway.Device, error)
	SeenAt(ctx context.Context, proxy uuid.UUID, sightings []gateway.Sighting) error
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
	// VisaKey returns the key of visas for an agent.
	VisaKey(ctx context.Context, agent uuid.UUID) ([]byte, error)
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
	opts Options
	wire *gateway.Gateway

	mu      sync.Mutex // guards the fields below
	records map[recordKey]*record
	// verdicts count until the time. One that was asked for before a revocation, in an earlier generation, is not kept.
	verdicts   map[verdictKey]time.Time
	generation uint64
}

// New returns a gateway that does not listen. The caller must stop it.
func New(opts Options) *Gateway {
	g := &Gateway{opts: opts, records: map[recordKey]*record{}, verdicts: map[verdictKey]time.Time{}}
	g.wire = gateway.New(gateway.Options{Logger: opts.Logger, PrivateKey: opts.PrivateKey, House: house{g}, Resolvers: opts.Resolvers})
	return g
}

// Start listens at a UDP port, on all addresses of the machine, and lets the devices in. 0 means any port.
func (g *Gateway) Start(ctx context.Context, port uint16) error {
	if err := g.wire.Listen(ctx, port); err != nil {
		return err
	}
	return g.wire.Load(ctx)
}

// Port returns the UDP port that the gateway listens at, 0 before Start.
func (g *Gateway) Port() uint16 { return g.wire.Port() }

// Stop ends every connection, and waits for them. It is idempotent.
func (g *Gateway) Stop() {
	g.wire.Stop()
	g.endRecords()
}

// Recheck compares the devices of a user, or of all users if it is uuid.Nil, with the database, and ends their
// connections that they may no longer have. It returns an error if that could not be found out for some.
func (g *Gateway) Recheck(ctx context.Context, user uuid.UUID) error {
	g.mu.Lock()
	g.generation++
	clear(g.verdicts)
	g.mu.Unlock()
	return g.wire.Recheck(ctx, user)
}

// verdictKey is a device that may connect to an agent.
type verdictKey struct{ device, agent uuid.UUID }

// admit returns an error unless a user may connect to an agent.
func (g *Gateway) admit(ctx context.Context, user, agent uuid.UUID) error {
	actor, err := g.opts.Accounts.Actor(ctx, user)
	if err != nil {
		return err
	}
	return g.opts.Agents.MayConnect(ctx, actor, agent)
}

// may returns an error unless a device may connect to an agent, as admit says or has said within verdictLife. Refusals
// are not kept: whom a workspace was just shared with need not wait.
func (g *Gateway) may(ctx context.Context, d gateway.Device, agent uuid.UUID) error {
	key, now := verdictKey{d.ID, agent}, time.Now()
	g.mu.Lock()
	until := g.verdicts[key]
	generation := g.generation
	g.mu.Unlock()
	if now.Before(until) {
		return nil
	}
	if err := g.admit(ctx, d.User, agent); err != nil {
		tried := connection(agent, d.User, d.Name, 0, d.Endpoint.Addr(), "")
		tried.Target = "" // not known here
		return g.opts.Connections.Refused(tried, err)
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

// agent returns the agent with an address, if a device may connect to it.
func (g *Gateway) agent(ctx context.Context, d gateway.Device, addr netip.Addr) (uuid.UUID, error) {
	agent, ok := g.opts.Mesh.CallingAgent(addr)
	if !ok {
		return uuid.Nil, fault.New(fault.NotFound, "No agent has the address %s.", addr)
	}
	return agent, g.may(ctx, d, agent)
}

// house is the Gateway as gateway.House.
type house struct{ *Gateway }

func (h house) Devices(ctx context.Context, user uuid.UUID) ([]gateway.Device, error) {
	return h.opts.Devices.Active(ctx, user)
}

func (h house) AtEndpoint(ctx context.Context, at netip.AddrPort) ([]gateway.Device, error) {
	return h.opts.Devices.AtEndpoint(ctx, at)
}

func (h house) Seen(ctx context.Context, sightings []gateway.Sighting) error {
	return h.opts.Devices.Seen(ctx, sightings)
}

func (h house) MayReach(ctx context.Context, d gateway.Device, addr netip.Addr) error {
	_, err := h.agent(ctx, d, addr)
	return err
}

func (h house) Find(ctx context.Context, d gateway.Device, name string) (netip.Addr, error) {
	agent, err := h.opts.Agents.ByName(ctx, d.User, name)
	if err != nil {
		return netip.Addr{}, err
	}
	return tailnet.Addr(agent), h.may(ctx, d, agent)
}

func (h house) Host(ctx context.Context, d gateway.Device, addr netip.Addr) (string, error) {
	agent, err := h.agent(ctx, d, addr)
	if err != nil {
		return "", err
	}
	return h.opts.Agents.Host(ctx, d.User, agent)
}

func (h house) Open(ctx context.Context, d gateway.Device, to gateway.Destination) (gateway.Session, error) {
	asking, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	agent, err := h.agent(asking, d, to.Addr.Addr())
	if err != nil {
		return nil, err
	}
	dial := h.opts.Mesh.DialAgent
	if to.Network == "udp" {
		dial = h.opts.Mesh.DialAgentUDP
	}
	conn, err := dial(ctx, agent, to.Addr.Port())
	if err != nil {
		return nil, err
	}
	return &session{Gateway: h.Gateway, ctx: ctx, device: d, agent: agent, port: to.Addr.Port(), conn: conn}, nil
}

// session is an open connection or flow of a device.
type session struct {
	*Gateway
	ctx    context.Context
	device gateway.Device
	agent  uuid.UUID
	port   uint16
	conn   net.Conn
	record *record // nil before Begin
	ended  sync.Once
}

// Context implements gateway.Session. Revocations reach it by Check.
func (s *session) Context() context.Context { return s.ctx }

// Check implements gateway.Session.
func (s *session) Check(ctx context.Context) error { return s.admit(ctx, s.device.User, s.agent) }

// Begin implements gateway.Session.
func (s *session) Begin() net.Conn {
	s.record = s.begin(s.device, s.agent, s.port)
	return audit.Counted(s.conn, s.record.open)
}

// End implements gateway.Session.
func (s *session) End(cause error) {
	s.ended.Do(func() {
		if s.record == nil {
			s.conn.Close()
			return
		}
		s.end(s.record, cause)
	})
}
