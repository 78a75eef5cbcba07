package coordinator

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/peering"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/websock"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Defaults of Options.
const (
	DefaultLostTimeout      = 15 * time.Minute
	DefaultReadyTimeout     = 5 * time.Second
	DefaultMaxSubscriptions = 1024
)

// Principal is the owner of a connection, established from its credential.
type Principal struct {
	Kind    protocol.Kind
	ID      uuid.UUID  // of the participant: for KindClient and KindProxy tailnet.ClientID of its key
	Name    string     // for logs and lists
	Subject uuid.UUID  // for KindClient: the user; for KindProxy: the proxy. Nil for others
	Session string     // for KindClient and KindProxy: what it joined with, as the Authorizer knows it. Empty for others
	Addr    netip.Addr // for KindClient: where it joined from, for logs; invalid if unknown. Zero for others
	Detail  string     // what the owner of the Server wants all servers to know about the participant, at most MaxDetail bytes
}

func (p Principal) same(other Principal) bool {
	return p.Kind == other.Kind && p.ID == other.ID && p.Subject == other.Subject
}

// Target is the participant of a subscription.
type Target struct {
	ID   uuid.UUID
	Kind protocol.Kind // empty while it is not connected
}

// Authorizer decides who may see whom. The server calls it for every subscription, without holding a lock, from many
// goroutines, and with a context that ends after AuthorizeTimeout. Nil allows. A refusal is a fault whose code is
// neither fault.Unavailable nor fault.Internal; the user sees its message. Any other error means that no decision was
// possible: the server then refuses a new subscription and keeps an existing tunnel.
type Authorizer interface {
	MaySee(ctx context.Context, from Principal, to Target) error
}

// AuthorizerFunc makes a function an Authorizer.
type AuthorizerFunc func(ctx context.Context, from Principal, to Target) error

func (f AuthorizerFunc) MaySee(ctx context.Context, from Principal, to Target) error {
	return f(ctx, from, to)
}

// Relay carries packets for admitted keys only. Both methods are idempotent and may be called from many goroutines, but
// never concurrently for one key; they return within a bounded time.
type Relay interface {
	Admit(tailnet.PublicKey)
	Revoke(tailnet.PublicKey) // also ends the key's connection
}

// Passes issues and redeems the passes by which agents prove to a restarted server which clients they have. Both
// methods are called from many goroutines.
type Passes interface {
	// Issue returns a pass of at most MaxPass bytes.
	Issue(Principal) (string, error)
	// Redeem returns the principal for which any server of this deployment issued the pass. It does not check whether
	// the principal's session still exists.
	Redeem(pass string) (Principal, error)
}

// Options of a Server.
type Options struct {
	Logger *slog.Logger // nil means silence
	// ID identifies this server in links to others. It is required for Link.
	ID         uuid.UUID
	Authorizer Authorizer // nil refuses everything
	// Resolve returns the participant named in a client's hello. It grants nothing: the server asks the Authorizer as
	// for every subscription. Its context ends after AuthorizeTimeout. If nil, names are ignored.
	Resolve func(ctx context.Context, from Principal, name string) (uuid.UUID, error)
	// Refused is called when the Authorizer has refused what a client asked for, before the client learns of it, and
	// not when it refuses later what it allowed. It must not block. It may be nil.
	Refused func(from Principal, id uuid.UUID, reason *fault.Error)
	// Passes are those of the deployment. If nil, agents keep clients that this server does not know for the grace of
	// the welcome.
	Passes Passes
	// StillAdmitted rechecks each client once it is in the table: its credential may have been revoked after the caller
	// checked it, and before the revocation could find the client. Errors are as an Authorizer's: a refusal ends the
	// client. If nil, no client is rechecked.
	StillAdmitted func(ctx context.Context, p Principal) error
	Relay         Relay // nil means none
	// RelayMap returns the relay map of a welcome. It must not block. Nil means no relays.
	RelayMap func() tailnet.RelayMap
	// LostTimeout is how long a participant without a connection is kept. 0 means DefaultLostTimeout.
	LostTimeout time.Duration
	// ReadyTimeout is how long an initiator waits for the destination's ready. 0 means DefaultReadyTimeout.
	ReadyTimeout time.Duration
	// MaxSubscriptions limits the subscriptions of each participant other than servers. 0 means
	// DefaultMaxSubscriptions.
	MaxSubscriptions int
	// OnPeer is called from one goroutine when a participant's connection has begun or ended, in order for each
	// participant. If it is slow it misses intermediate changes, never the last. It may be nil.
	OnPeer func(p Principal, online bool)
}

// Timeouts that are the same everywhere.
const (
	AuthorizeTimeout = 10 * time.Second // for one answer of the Authorizer
	closeTimeout     = 3 * time.Second  // for the last message and the closing handshake
	tombstoneTime    = time.Minute      // how long a revocation refuses connections that were authenticated before it
)

// Server is the table of connected participants. Its methods are safe for concurrent use.
type Server struct {
	opts Options
	log  *slog.Logger

	ctx    context.Context // ends when Close stops waiting for clients
	cancel context.CancelFunc

	mu sync.Mutex // guards everything below up to the next heading, all peers, tunnels and sessions; held for microseconds
	table
	timers   timers
	events   events
	authGen  uint64 // grows with every change of what the Authorizer may answer
	closed   bool
	draining bool // Drain was called
	sessions map[*session]struct{}
	links    map[uuid.UUID]*peering.Link // to other servers
	heard    time.Time                   // when the other server was last heard on a link that has ended
	departed map[uuid.UUID]departure     // participants of this server that are gone; a server without a link may not know

	// Read without a lock.
	byAddr sync.Map // netip.Addr → Principal

	wakeTimers, wakeEvents notify.Wake
	background             sync.WaitGroup
	serving                sync.WaitGroup // Add only with mu held and closed false

	counters struct {
		readyTimeouts, refused, rejected, dropped, violations atomic.Uint64
	}
}

// New returns a running server. Close ends it.
func New(opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.RelayMap == nil {
		opts.RelayMap = func() tailnet.RelayMap { return tailnet.RelayMap{} }
	}
	if opts.LostTimeout == 0 {
		opts.LostTimeout = DefaultLostTimeout
	}
	if opts.ReadyTimeout == 0 {
		opts.ReadyTimeout = DefaultReadyTimeout
	}
	if opts.MaxSubscriptions == 0 {
		opts.MaxSubscriptions = DefaultMaxSubscriptions
	}
	s := &Server{
		opts: opts, log: opts.Logger, table: newTable(),
		sessions: make(map[*session]struct{}),
		links:    make(map[uuid.UUID]*peering.Link), departed: make(map[uuid.UUID]departure),
		wakeTimers: notify.NewWake(), wakeEvents: notify.NewWake(),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.background.Go(s.runTimers)
	s.background.Go(s.runEvents)
	return s
}

// Handle upgrades the request and serves it until the connection ends. An error is a fault with which the caller must
// answer, because nothing has been written yet. After nil the response is complete.
//
// The caller has parsed the hello first, and authenticated the request as p after that.
func (s *Server) Handle(w http.ResponseWriter, r *http.Request, p Principal, h protocol.Hello) error {
	if err := s.precheck(p, h); err != nil {
		s.counters.rejected.Add(1)
		return err
	}
	conn, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: protocol.MaxClientMessage})
	if err != nil {
		s.log.Debug("mesh connection not upgraded", "peer", p.ID, "err", err)
		return nil
	}
	s.log.Debug("mesh connection began", "peer", p.ID, "kind", string(p.Kind))
	// The request's own context must not be used after the upgrade.
	if err := s.Serve(context.WithoutCancel(r.Context()), conn, p, h); err != nil {
		s.log.Debug("mesh connection ended", "peer", p.ID, "kind", string(p.Kind), "err", err)
	}
	return nil
}

// Lookup returns the principal of the connected or lost participant with a mesh address. RPC services on the mesh
// identify their caller with it. It takes no lock.
func (s *Server) Lookup(addr netip.Addr) (Principal, bool) {
	v, ok := s.byAddr.Load(addr)
	if !ok {
		return Principal{}, false
	}
	return v.(Principal), true
}

// Revoke removes a participant for good: its partners forget it, the relay ends its connection, and its own connection
// is closed with the reason, after which its client gives up. Connections authenticated before this call are refused.
// It returns when the relay has released the key, and reports whether the participant was in the table.
func (s *Server) Revoke(id uuid.UUID, reason string) bool {
	return s.expel(id, protocol.ErrorMessage{Code: fault.Forbidden, Message: reason}, true)
}

// Kick is like Revoke for a participant that may come back: its client tries again. It does nothing about participants
// of other servers.
func (s *Server) Kick(id uuid.UUID, reason string) bool {
	return s.expel(id, protocol.ErrorMessage{Code: fault.Unavailable, Message: reason}, false)
}

// RelayMapChanged sends every participant the relay map.
func (s *Server) RelayMapChanged() {
	m := s.opts.RelayMap()
	data := protocol.Encode(protocol.ServerMessage{Relay: &m})
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		sess.relay = data
		sess.wake.Poke()
	}
}

// Notify sends a notice to every participant. A participant that does not read misses all but the first few.
func (s *Server) Notify(n protocol.Notice) {
	data := protocol.Encode(protocol.ServerMessage{Notice: &n})
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		sess.notify(data)
	}
}

// Close ends all connections with a status that makes clients reconnect soon, and waits until all of the server's
// goroutines have ended, a few seconds at most. It is idempotent, and leaves the relay's admissions as they are.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for sess := range s.sessions {
		sess.end(stopping(), websock.StatusGoingAway)
	}
	for _, l := range s.links {
		l.End()
	}
	s.mu.Unlock()
	timer := time.AfterFunc(2*closeTimeout, s.cancel)
	s.serving.Wait()
	timer.Stop()
	s.cancel()
	s.background.Wait()
	return nil
}
