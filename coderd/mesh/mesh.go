// Package mesh is the server's part of the mesh: its node, the coordinator and the relay. It turns a credential into a
// connection's principal and decides who may see whom. The caller provides the RPC services that run on the node; this
// package knows neither jobs nor templates.
//
//	agent token, user session, provisioner key
//	        |  GET /api/v2/mesh/coordinate
//	        v
//	   principal ---> coordinator ---> relay admits the key
//	                      |
//	                      +--- MaySee? client → agents of its own and shared workspaces, agent and provisioner → this server,
//	                           client → provisioners that it may see in lists, for pings and nothing else,
//	                           region proxy → agents whose apps a visitor may open there, while the visit lasts,
//	                           this server → agents, when a terminal or an app needs one (DialAgent)
//
// A caller of an RPC on the node is known by its mesh source address, which WireGuard binds to its key.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/signed"
	"github.com/codermesh/codermesh/v2/coordinator"
	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/relay"
)

// Agent is the agent that an agent token authenticates.
type Agent struct {
	ID    uuid.UUID
	Name  string    // owner/workspace.agent, for display
	Owner uuid.UUID // of its workspace; Nil while that is prebuilt
}

// Options configures a Service.
type Options struct {
	Logger *slog.Logger
	// ID identifies this process among the servers of the deployment. It is the id of its node. The zero value means a
	// new one.
	ID uuid.UUID
	// Accounts authenticates users. Accounts, Keys and Signer are required.
	Accounts Accounts
	// Keys authenticates provisioners by named keys.
	Keys Keys
	// Signer creates the passes by which agents tell a restarted server which clients they serve.
	Signer *signed.Signer
	// Organization is the organization of provisioners that name none.
	Organization uuid.UUID
	// ProvisionerPSK lets external provisioners join. If empty, they cannot join with a shared key.
	ProvisionerPSK secret.Token
	// STUNAddress is the UDP address that answers STUN. If empty, it is DefaultSTUNAddress, or any free port if that
	// one is taken. "off" disables STUN.
	STUNAddress string
	// STUNServers are further STUN servers for participants, as host:port.
	STUNServers []string
	// RelayOnly keeps all participants from direct paths.
	RelayOnly bool
	// Refused is called when a user's program was refused an agent that it asked for by id, or by name if that is set.
	// It must not block. Nil: it is not recorded.
	Refused func(user, agent uuid.UUID, name string, from netip.Addr, reason error)
	// LocalURL is the URL at which this process's own nodes reach the server, over plain HTTP.
	LocalURL *url.URL
}

// Accounts authenticates users. Its errors are faults, Unauthenticated for a session that does not exist or has ended.
type Accounts interface {
	// Authenticate returns the user who sent a request, as in httpapi.Options.
	Authenticate(*http.Request) (rbac.Actor, error)
	// Session returns a user with the current rights of a session, by the id of its token.
	Session(ctx context.Context, id string, userID uuid.UUID) (rbac.Actor, error)
}

// Keys authenticates provisioners by named keys.
type Keys interface {
	// Authenticate returns the key that a provisioner sent. It returns the fault Unauthenticated if there is no such
	// key.
	Authenticate(ctx context.Context, key secret.Token) (ProvisionerKey, error)
	// Existing returns those of the keys that have not been deleted.
	Existing(ctx context.Context, ids []uuid.UUID) ([]uuid.UUID, error)
	// Organization returns the id of the organization that a provisioner names. The fault is NotFound if there is none.
	Organization(ctx context.Context, reference string) (uuid.UUID, error)
}

// Agents authenticates agents, and reports who owns them and how packets reach them.
type Agents interface {
	// AuthenticateAgent returns the fault Unauthenticated for a token that may not connect.
	AuthenticateAgent(ctx context.Context, token secret.Token) (Agent, error)
	// MayConnect returns a fault unless the user may open connections into the agent's workspace.
	MayConnect(ctx context.Context, actor rbac.Actor, agentID uuid.UUID) error
	// ByName returns the agent that [owner/]workspace[.agent] names, of the user's own or shared with them. It returns
	// the fault NotFound if the name matches none, or several.
	ByName(ctx context.Context, userID uuid.UUID, name string) (uuid.UUID, error)
	// Reachable returns those of the agents that the user may connect to while they run.
	Reachable(ctx context.Context, userID uuid.UUID, agents ...uuid.UUID) ([]uuid.UUID, error)
	// Paths asks an agent how packets travel between it and its peers.
	Paths(ctx context.Context, agent uuid.UUID) ([]tailnet.PeerStatus, error)
}

// RegionProxy is the proxy that a region proxy's token authenticates.
type RegionProxy struct {
	ID          uuid.UUID
	Name        string
	Fingerprint string // of the token
}

// Regions authenticates region proxies, and reports what their nodes may see.
type Regions interface {
	// AuthenticateProxy returns the fault Unauthenticated for a token that is not valid.
	AuthenticateProxy(ctx context.Context, token secret.Token) (RegionProxy, error)
	// MayVisit returns a fault unless a proxy's token is valid and its node has a visa for an agent.
	MayVisit(ctx context.Context, proxy RegionProxy, node, agent uuid.UUID) error
}

// Queue gives provisioners their jobs.
type Queue interface {
	// Cut takes its jobs from a provisioner that lost its access. The reason is a sentence.
	Cut(ctx context.Context, provisioner uuid.UUID, reason string) error
}

// DefaultSTUNAddress is the registered port of STUN (RFC 8489) on all addresses.
const DefaultSTUNAddress = ":3478"

// Service is the server's part of the mesh. New creates everything but does not run the node; Start joins it.
type Service struct {
	opts     Options
	agents   Agents // set by Bind, like queue and proxies
	queue    Queue
	proxies  Regions
	log      *slog.Logger
	relay    *relay.Server
	coord    *coordinator.Server
	stunPort int
	localURL *url.URL

	builtIn secret.Token // lets this process's own provisioners join; never leaves the process

	provisioners struct {
		sync.Mutex
		byID map[uuid.UUID]Provisioner // those that asked this process to join, were not cut and are not long gone: a revocation finds also those that are absent
	}

	// regions are the relays beside the servers' own.
	regions struct {
		sync.Mutex
		list []tailnet.RelayRegion
	}
	admissions *admissions

	replicas      replicas
	introductions introductions
	knownClients  knownClients
	crowd         crowd
	joins         *joins
	keep          time.Duration // keepAgent, except in tests
	dialBack      time.Duration // dialBackAfter, except in tests

	joined chan struct{} // closed when node and client are set
	node   *tailnet.Node
	client *client.Client // the node's
	rpc    *http.Server
	done   sync.WaitGroup
}

// New creates the relay and the coordinator. It blocks only to open the STUN socket.
func New(opts Options) (*Service, error) {
	if opts.ID == uuid.Nil {
		opts.ID = uuid.New()
	}
	r, err := relay.New(relay.Options{Logger: opts.Logger, MeshKey: opts.Signer.Derive("mesh of relays")})
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	s := &Service{opts: opts, log: opts.Logger, relay: r, builtIn: secret.Token(secret.Text(32)), localURL: opts.LocalURL, keep: keepAgent, dialBack: dialBackAfter, joined: make(chan struct{})}
	s.crowd.most, s.crowd.byUser = maxClients, map[uuid.UUID]int{}
	s.joins = newJoins(processors(), newBusy(), opts.Logger)
	s.provisioners.byID = map[uuid.UUID]Provisioner{}
	s.introductions.byID = map[uuid.UUID]*introduction{}
	s.replicas.byID, s.replicas.followers = map[uuid.UUID]*replica{}, map[uuid.UUID]int{}
	if s.stunPort, err = s.listenSTUN(opts.STUNAddress); err != nil {
		r.Close()
		return nil, err
	}
	s.admissions = &admissions{relay: r, keys: map[tailnet.PublicKey]struct{}{}, followers: map[*KeyFollower]struct{}{}}
	s.coord = coordinator.New(coordinator.Options{
		Logger:     opts.Logger,
		ID:         opts.ID,
		Authorizer: coordinator.AuthorizerFunc(s.maySee),
		Resolve: func(ctx context.Context, from coordinator.Principal, name string) (uuid.UUID, error) {
			id, err := s.agents.ByName(ctx, from.Subject, name)
			if err != nil {
				s.refused(from, uuid.Nil, name, err)
			}
			return id, err
		},
		Refused: func(from coordinator.Principal, id uuid.UUID, reason *fault.Error) {
			s.refused(from, id, "", reason)
		},
		Passes: passes{opts.Signer},
		StillAdmitted: func(ctx context.Context, p coordinator.Principal) error {
			_, err := s.actor(ctx, p)
			return err
		},
		Relay:    s.admissions,
		RelayMap: s.relayMap,
	})
	return s, nil
}

// Bind sets the services that are built upon this one and that it depends on in turn: agents, the queue and region
// proxies are reached over this mesh, and decide who may be on it. Call it once, before Start and before any request is
// served.
func (s *Service) Bind(agents Agents, queue Queue, proxies Regions) {
	s.agents, s.queue, s.proxies = agents, queue, proxies
}

// noSTUN stands for no further STUN servers, as in settings of Coder.
const noSTUN = "disable"

// ParseSTUNServers checks the addresses of further STUN servers, as a setting has them. Its errors are faults.
func ParseSTUNServers(setting string, addresses []string) ([]string, error) {
	if len(addresses) == 1 && addresses[0] == noSTUN {
		return nil, nil
	}
	if len(addresses) > tailnet.MaxSTUN {
		return nil, fault.New(fault.Invalid, "%s names %d servers", setting, len(addresses)).
			WithDetail("At most %d fit into a measurement.", tailnet.MaxSTUN)
	}
	for _, address := range addresses {
		if _, _, err := tailnet.ParseSTUN(address); err != nil {
			return nil, fault.New(fault.Invalid, "%s: %w", setting, err).WithDetail("Such as stun.example.com:3478.")
		}
	}
	return addresses, nil
}

func (s *Service) listenSTUN(addr string) (port int, err error) {
	if addr == "off" {
		return 0, nil
	}
	if addr != "" {
		if port, err = s.relay.ListenSTUN(addr); err != nil {
			return 0, fault.New(fault.Unavailable, "The STUN address %s cannot be used: %w", addr, err).
				WithDetail("Choose another with --stun-address, or turn STUN off with --stun-address=off: peers behind NAT are relayed then.")
		}
		return port, nil
	}
	if port, err = s.relay.ListenSTUN(DefaultSTUNAddress); err == nil {
		return port, nil
	}
	s.log.Info("default STUN port is taken, using another", "addr", DefaultSTUNAddress, "err", err)
	if port, err = s.relay.ListenSTUN(":0"); err != nil {
		return 0, fmt.Errorf("listen for STUN: %w", err)
	}
	return port, nil
}

// relayMap contains no URL of the servers' region: each participant reaches the relay at the URL by which it reached
// this server.
func (s *Service) relayMap() tailnet.RelayMap {
	own := tailnet.RelayRegion{ID: tailnet.ServerRegion, Code: "server", Name: "This server", STUNPort: s.stunPort}
	s.regions.Lock()
	defer s.regions.Unlock()
	return tailnet.RelayMap{
		Regions: append([]tailnet.RelayRegion{own}, s.regions.list...), RelayOnly: s.opts.RelayOnly,
		STUN: s.opts.STUNServers,
	}
}

// RelayMap returns the relay map that participants receive.
func (s *Service) RelayMap() tailnet.RelayMap { return s.relayMap() }

// Relays returns how this server's own node reaches the relay, and whether peers receive a STUN address.
func (s *Service) Relays() (links []tailnet.RelayLink, stun bool) {
	select {
	case <-s.joined:
		links = s.node.Status().Relays
	default:
	}
	return links, s.stunPort != 0 || len(s.opts.STUNServers) > 0
}

// LocalURL returns the URL at which this process's own nodes reach the server, over plain HTTP on loopback.
func (s *Service) LocalURL() *url.URL { return s.localURL }

// Start joins this server's own node and serves rpc on its mesh address, and nowhere else. The relay must be reachable
// at LocalURL by then or soon after.
func (s *Service) Start(rpc http.Handler) error {
	if s.agents == nil || s.queue == nil {
		return errors.New("the mesh is started before it is bound to agents and queue")
	}
	id := s.opts.ID
	node, err := tailnet.New(tailnet.Options{ID: id, Logger: s.log})
	if err != nil {
		return fmt.Errorf("start mesh node: %w", err)
	}
	s.node = node
	listener, err := node.Listen(meshport.ServerRPC)
	if err != nil {
		return fmt.Errorf("listen on the mesh: %w", err)
	}
	own := coordinator.Principal{Kind: protocol.KindServer, ID: id, Name: "server"}
	s.client = client.New(client.Options{
		Logger:  s.log,
		Dial:    s.coord.Dialer(own),
		Kind:    own.Kind,
		URL:     s.localURL,
		Key:     node.PublicKey(),
		NewNode: func(protocol.Welcome) (client.Node, error) { return node, nil },
		Inbound: inboundAtServer,
		Group:   s.group,
	})
	s.client.Start()
	close(s.joined)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // WireGuard encrypts
	s.rpc = &http.Server{
		Handler: rpc, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.done.Go(func() {
		if err := s.rpc.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) &&
			!errors.Is(err, net.ErrClosed) {
			s.log.Error("mesh RPC service ended", "err", err)
		}
	})
	return nil
}

// inboundAtServer returns what each kind of peer may open at this server's node: agents and provisioners reach the RPC
// services, clients nothing.
func inboundAtServer(kind protocol.Kind) tailnet.Inbound {
	switch kind {
	case protocol.KindAgent, protocol.KindProvisioner:
		return tailnet.InboundPorts(meshport.ServerRPC)
	default:
		return tailnet.InboundNone
	}
}

// group returns the owner of an agent: what all agents of a user send shares a bound of memory at this server's node.
// Other peers are groups alone, and so are agents that an older server admitted, which does not report their owners.
func (s *Service) group(id uuid.UUID) uuid.UUID {
	p, _ := s.coord.Lookup(tailnet.Addr(id))
	if p.Kind != protocol.KindAgent {
		return uuid.Nil
	}
	owner, err := uuid.Parse(p.Detail)
	if err != nil {
		return uuid.Nil
	}
	return owner
}

// Drain sends agents, clients and provisioners to other servers, one after another over the given time. Their tunnels
// stay. It returns when all are gone, or with ctx's error. Call it after the built-in provisioners have stopped, and
// Close afterwards.
func (s *Service) Drain(ctx context.Context, over time.Duration) error {
	return s.coord.Drain(ctx, over)
}

// Close leaves the mesh. Participants receive the message that the server is stopping and keep their tunnels. Close is
// idempotent.
func (s *Service) Close() error {
	var errs []error
	s.joins.close()
	s.endReplicas()
	if s.rpc != nil {
		errs = append(errs, s.rpc.Close())
	}
	s.endIntroductions()
	errs = append(errs, s.coord.Close())
	s.done.Wait()
	if s.client != nil {
		errs = append(errs, s.client.Close())
	}
	if s.node != nil {
		errs = append(errs, s.node.Close())
	}
	errs = append(errs, s.relay.Close())
	return errors.Join(errs...)
}

// Routes registers the coordinator's websocket and the relay. The relay is public because it asks every key for proof
// and admits only those that the coordinator has bound.
func (s *Service) Routes(mux *httpapi.Mux) {
	uncounted := httpapi.Uncounted("after an outage all agents, provisioners and clients return at once, many from one address")
	mux.Handle("GET "+protocol.Path, rbac.Public, s.coordinate, uncounted)     // coordinate checks credentials itself: agents are not users
	mux.Handle("GET "+protocol.LinkPath, rbac.Public, s.acceptLink, uncounted) // acceptLink asks for proof of the deployment's key
	mux.Handle("GET /api/v2/mesh/peers", rbac.AnyToken, s.listPeers)           // the handler decides for each peer
	for _, pattern := range []string{"GET /derp", "GET /derp/"} {
		mux.Handle(pattern, rbac.Public, httpapi.Serve(s.relay.Handler()))
	}
}

// maySee decides who may see whom. Agents and provisioners may see this server; the coordinator itself allows them
// nothing else.
func (s *Service) maySee(ctx context.Context, from coordinator.Principal, to coordinator.Target) error {
	switch from.Kind {
	case protocol.KindAgent, protocol.KindProvisioner:
		if to.Kind == protocol.KindServer {
			return nil
		}
	case protocol.KindServer:
		return nil
	case protocol.KindProxy:
		return s.proxies.MayVisit(ctx, RegionProxy{
			ID: from.Subject, Name: from.Name, Fingerprint: from.Session,
		}, from.ID, to.ID)
	case protocol.KindClient:
		actor, err := s.actor(ctx, from)
		if err != nil {
			return err
		}
		if p, ok := s.daemon(to.ID); ok {
			return mayReach(actor, p)
		}
		return s.agents.MayConnect(ctx, actor, to.ID)
	}
	return rbac.NotFound(rbac.Agent)
}

// refused records that a user's program was refused an agent.
func (s *Service) refused(from coordinator.Principal, id uuid.UUID, name string, reason error) {
	if s.opts.Refused != nil && from.Kind == protocol.KindClient {
		s.opts.Refused(from.Subject, id, name, from.Addr, reason)
	}
}

// RevokeAgents removes agents from the mesh, for example when their workspace was stopped or deleted.
func (s *Service) RevokeAgents(ids ...uuid.UUID) {
	for _, id := range ids {
		s.coord.Revoke(id, "the workspace was stopped or deleted")
	}
}

// Recheck checks again whether the user's clients may see the peers that they see, and whether the provisioners that
// joined with the user's sessions may stay, for example when the user was suspended or lost a role; uuid.Nil means all
// users. It blocks until all checks are done.
func (s *Service) Recheck(ctx context.Context, userID uuid.UUID) error {
	return errors.Join(s.recheckClients(ctx, userID), s.recheckProvisioners(ctx, userID))
}

// Sessions returns the ids of the sessions and tokens with which the clients that are connected to this server joined.
func (s *Service) Sessions() []string {
	var ids []string
	for _, peer := range s.coord.Peers(protocol.KindClient) {
		if peer.Online && peer.Server == uuid.Nil {
			ids = append(ids, peer.Session)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// recheckClients removes the clients whose session has ended, even those that are offline, and rechecks the tunnels of
// the others.
func (s *Service) recheckClients(ctx context.Context, userID uuid.UUID) error {
	s.coord.Doubt()
	var ids []uuid.UUID
	var errs []error
	for _, peer := range s.coord.Peers(protocol.KindClient) {
		if userID != uuid.Nil && peer.Subject != userID {
			continue
		}
		_, err := s.actor(ctx, peer.Principal)
		switch code := fault.CodeOf(err); {
		case err == nil:
			ids = append(ids, peer.ID)
		case code == fault.Unauthenticated || code == fault.Forbidden:
			s.coord.Revoke(peer.ID, fault.As(err).Message)
		default:
			errs = append(errs, err)
		}
	}
	if len(ids) > 0 {
		errs = append(errs, s.coord.Recheck(ctx, ids...))
	}
	return errors.Join(errs...)
}

// RecheckProxies ends the tunnels of region proxies whose visas have expired or whose token has been replaced, and logs
// what could not be decided. It blocks until all checks are done.
func (s *Service) RecheckProxies(ctx context.Context) {
	var ids []uuid.UUID
	for _, peer := range s.coord.Peers(protocol.KindProxy) {
		ids = append(ids, peer.ID)
	}
	if len(ids) == 0 {
		return
	}
	if err := s.coord.Recheck(ctx, ids...); err != nil && ctx.Err() == nil {
		s.log.Warn("cannot check what region proxies may reach, trying again", "err", err)
	}
}

// actor returns a client's user with the current rights of the session that it joined with. It returns the fault
// Unauthenticated or Forbidden if the session may no longer be on the mesh.
func (s *Service) actor(ctx context.Context, client coordinator.Principal) (rbac.Actor, error) {
	actor, err := s.opts.Accounts.Session(ctx, client.Session, client.Subject)
	if err != nil {
		return rbac.Actor{}, err
	}
	return actor, rbac.Needs(rbac.Connect, rbac.Agent).Check(actor)
}

// Peer is a participant that is connected to an agent.
type Peer struct {
	User   uuid.UUID  // of a client; Nil for others
	Addr   netip.Addr // where a client joined from; invalid if unknown
	Server bool
}

// Peer returns the participant that holds a mesh address, or the client that held it and has left.
func (s *Service) Peer(addr netip.Addr) (Peer, bool) {
	p, ok := s.coord.Lookup(addr)
	if !ok {
		return s.knownClients.peer(addr)
	}
	return Peer{User: p.Subject, Addr: p.Addr, Server: p.Kind == protocol.KindServer}, ok
}

// AgentArrived ends an agent's turn to join, because its stream to this server has begun. The caller calls gone when
// the stream has ended.
func (s *Service) AgentArrived(agent uuid.UUID) (gone func()) { return s.joins.arrived(agent) }

// CallingAgent returns the agent that holds a mesh address.
func (s *Service) CallingAgent(addr netip.Addr) (uuid.UUID, bool) {
	p, ok := s.coord.Lookup(addr)
	return p.ID, ok && p.Kind == protocol.KindAgent
}
