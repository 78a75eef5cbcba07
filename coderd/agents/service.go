package agents

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/extauth"
	"github.com/codermesh/codermesh/v2/coderd/identity"
	"github.com/codermesh/codermesh/v2/coderd/instanceidentity"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/pubsub"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Channels on which builds notify every server of changes to agents. Payloads are agent ids.
const (
	channelRevoked  = "agents_revoked"
	channelShutdown = "agents_shutdown"
	channelManifest = "agents_manifest"
)

const (
	defaultReturnGrace = 30 * time.Second
	defaultSilence     = 35 * time.Second // two signs of life, and an answer that is late
	queryTimeout       = 10 * time.Second
	retryAfter         = time.Second
)

// Options configure the service.
type Options struct {
	DB     *database.DB
	PubSub pubsub.PubSub
	Logger *slog.Logger
	// AccessURL is the server's public URL, as agents' sessions see it.
	AccessURL string
	// RelayOnly says that the mesh has no direct paths.
	RelayOnly bool
	// HostnameSuffix is the suffix of names in ssh configurations. "" means none.
	HostnameSuffix string
	// Ports returns the addresses at which browsers reach ports of agents. Nil means that there are none.
	Ports Ports
	// RelayRegion names the relay in agents' latencies. "" means "default".
	RelayRegion string
	// ArchivesDir is the folder of archives that workspaces may fetch. "" means that there is none.
	ArchivesDir string
	// Mesh reaches the agents. Nil means that no agent is reachable.
	Mesh Mesh
	// Unlinked reports whether a server is another one to which this one has no link. Nil means that there are no other
	// servers.
	Unlinked func(server uuid.UUID) bool
	// Peers returns the participant that holds a mesh address. Nil means that none is known.
	Peers func(netip.Addr) (Peer, bool)
	// Connections receives the terminals that this server proxies. Nil means that they are not recorded.
	Connections *audit.Connections
	// Accounts returns data of the agents' owners. Nil means that all are active, and none has a key.
	Accounts Accounts
	// ExternalAuth has the tokens that sign users in at Git hosts. Nil means that there are none.
	ExternalAuth *extauth.Service
	// Instances verifies who machines of clouds are. Nil means that agents have tokens only.
	Instances *instanceidentity.Verifier
	// Identity issues ID tokens. Nil means that agents get none.
	Identity *identity.Service
	// Secrets has users' secrets. Nil means that there are none.
	Secrets Secrets
	// HostKeys gives agents the keys that stock SSH clients know them by. Nil: they serve none.
	HostKeys HostKeys
	// Notifications records what agents' owners are told. Nil means that nothing is.
	Notifications *notifications.Recorder
	// ReturnGrace is how long agents may take to come back after their server has ended. 0 means 30 s.
	ReturnGrace time.Duration
	// ServerID identifies this process among the servers of the database. The zero value means a new one.
	ServerID uuid.UUID
	// Silence is how long a connected agent may stay silent, in the mesh and to its coordinator. 0 means 35 s.
	Silence time.Duration
	// UsageInterval is how long changes of agents' latencies and sessions are collected for the other servers. 0 means
	// 5 s.
	UsageInterval time.Duration
}

// Mesh reaches agents. It makes no decisions.
type Mesh interface {
	// DialAgent connects to a port of an agent. Its errors are faults.
	DialAgent(ctx context.Context, agent uuid.UUID, port uint16) (net.Conn, error)
	// LastSeen returns when this server's coordinator last heard from the agent, or the zero time.
	LastSeen(agent uuid.UUID) time.Time
	// AgentContested reports whether two processes claim to be the agent.
	AgentContested(agent uuid.UUID) bool
	// AgentArrived reports that an agent's stream has begun. The caller calls gone when the stream has ended.
	AgentArrived(agent uuid.UUID) (gone func())
	// RevokeAgents takes the agents off the mesh. One goroutine calls it, possibly more than once for an agent.
	RevokeAgents(agents ...uuid.UUID)
}

// Peer is a participant of the mesh that is connected to an agent.
type Peer struct {
	User   uuid.UUID  // who joined; Nil for a server
	Addr   netip.Addr // from where; invalid if unknown
	Server bool
}

// HostKeys has the SSH host keys of agents.
type HostKeys interface {
	// Agent returns the seed of an agent's ed25519 key: the same for every build of the workspace.
	Agent(workspace uuid.UUID, name string) []byte
	// CertifyAgent returns a certificate of that key for the names of the agent, in the wire format.
	CertifyAgent(ctx context.Context, workspace uuid.UUID, owner, workspaceName, name string) ([]byte, error)
}

// Accounts returns data of the agents' owners.
type Accounts interface {
	// Active returns a fault for a user who was suspended or removed.
	Active(ctx context.Context, user uuid.UUID) error
	// GitSSHKey returns a user's key pair for git: authorized_keys and OpenSSH's PEM form.
	GitSSHKey(ctx context.Context, user uuid.UUID) (public string, private secret.Token, err error)
}

// Secrets has the secrets that users' workspaces get.
type Secrets interface {
	// SecretsOf returns those of a user that go to workspaces.
	SecretsOf(ctx context.Context, user uuid.UUID) ([]Secret, error)
}

// Secret is a value that a workspace gets as a variable, a file or both: see package usersecret for their names.
type Secret struct {
	Name, EnvName, FilePath string // "": not a variable, not a file
	Value                   secret.Token
}

// Ports returns the addresses at which browsers reach ports of agents.
type Ports interface {
	// PortURL returns the pattern of the URLs of an agent's ports, with {{port}} in it; "" when browsers cannot reach
	// them.
	PortURL(owner, workspace, agent string) string
}

// nowhere is the Mesh and the Ports of a server that has neither.
type nowhere struct{}

func (nowhere) DialAgent(context.Context, uuid.UUID, uint16) (net.Conn, error) {
	return nil, fault.New(fault.Unavailable, "This server has not joined the mesh.")
}
func (nowhere) LastSeen(uuid.UUID) time.Time          { return time.Time{} }
func (nowhere) AgentContested(uuid.UUID) bool         { return false }
func (nowhere) AgentArrived(uuid.UUID) func()         { return func() {} }
func (nowhere) RevokeAgents(...uuid.UUID)             {}
func (nowhere) PortURL(string, string, string) string { return "" }

// Service knows which agents are connected. Safe for concurrent use.
type Service struct {
	opts      Options
	log       *slog.Logger
	startedAt time.Time

	wake    notify.Wake     // pending is not empty
	life    context.Context // ends with Stop
	stop    context.CancelFunc
	stopped chan struct{} // closed when run has ended; nil before Start

	conns struct {
		sync.Mutex
		byAgent  map[uuid.UUID]*connection
		returned map[uuid.UUID]bool // agents that connected since the start; nil once the grace is over
		streams  sync.WaitGroup     // Add is under the lock while not closing
		closing  bool
	}
	terminals struct {
		sync.Mutex
		open  map[*openTerminal]struct{}
		files map[uuid.UUID]int // what each user does with files at the moment
		// programs counts the connections of programs that add to an agent's log.
		programs map[uuid.UUID]int
		// archives counts the archives that each agent reads.
		archives map[uuid.UUID]int
	}
	metadata struct {
		sync.Mutex
		byAgent map[uuid.UUID]*metadataHub
		running sync.WaitGroup // Add is under the lock while not stopping
		stopped bool
	}
	usages  usages
	pending struct {
		sync.Mutex
		revoked, shutdown, manifest map[uuid.UUID]bool
		lookAgain                   bool // notifications may have been lost
	}
}

// New returns a service that is not started.
func New(opts Options) *Service {
	if opts.ServerID == uuid.Nil {
		opts.ServerID = uuid.New()
	}
	if opts.ReturnGrace == 0 {
		opts.ReturnGrace = defaultReturnGrace
	}
	if opts.Silence == 0 {
		opts.Silence = defaultSilence
	}
	if opts.UsageInterval == 0 {
		opts.UsageInterval = usageInterval
	}
	if opts.Peers == nil {
		opts.Peers = func(netip.Addr) (Peer, bool) { return Peer{}, false }
	}
	if opts.Mesh == nil {
		opts.Mesh = nowhere{}
	}
	if opts.Ports == nil {
		opts.Ports = nowhere{}
	}
	if opts.RelayRegion == "" {
		opts.RelayRegion = "default"
	}
	s := &Service{opts: opts, log: opts.Logger, wake: notify.NewWake(), startedAt: now()}
	s.life, s.stop = context.WithCancel(context.Background())
	s.usages.elsewhere, s.usages.published = map[uuid.UUID]foreignUsage{}, map[uuid.UUID]usage{}
	s.conns.byAgent = map[uuid.UUID]*connection{}
	s.conns.returned = map[uuid.UUID]bool{}
	s.terminals.open = map[*openTerminal]struct{}{}
	s.terminals.files = map[uuid.UUID]int{}
	s.terminals.programs = map[uuid.UUID]int{}
	s.terminals.archives = map[uuid.UUID]int{}
	s.metadata.byAgent = map[uuid.UUID]*metadataHub{}
	s.pending.revoked = map[uuid.UUID]bool{}
	s.pending.shutdown = map[uuid.UUID]bool{}
	s.pending.manifest = map[uuid.UUID]bool{}
	return s
}

// Start listens for changes that builds make to agents, and gives agents that were connected before a restart time to
// return. It does not block.
func (s *Service) Start() {
	s.stopped = make(chan struct{})
	cancels := []func(){
		s.opts.PubSub.Subscribe(channelRevoked, func(payload string) { s.note(payload, s.pending.revoked) }),
		s.opts.PubSub.Subscribe(channelShutdown, func(payload string) { s.note(payload, s.pending.shutdown) }),
		s.opts.PubSub.Subscribe(channelManifest, func(payload string) { s.note(payload, s.pending.manifest) }),
		s.opts.PubSub.Subscribe(channelUsage, s.hearUsage),
	}
	go func() {
		defer close(s.stopped)
		var sharing sync.WaitGroup
		sharing.Go(func() { s.shareUsage(s.life) })
		defer sharing.Wait()
		defer func() {
			for _, c := range cancels {
				c()
			}
		}()
		s.run(s.life)
	}()
}

// Stop ends followed logs, and the streams of all agents without marking them disconnected: they are expected back. It
// waits for the streams, is idempotent, and works before Start.
func (s *Service) Stop() {
	s.conns.Lock()
	s.conns.closing = true
	open := slices.Collect(maps.Values(s.conns.byAgent))
	s.conns.Unlock()
	for _, c := range open {
		c.end(errStopping)
	}
	s.stop()
	s.stopMetadata()
	if s.stopped != nil {
		<-s.stopped
	}
	s.conns.streams.Wait()
}

// note records a notification; the run loop acts on it.
func (s *Service) note(payload string, set map[uuid.UUID]bool) {
	id, err := uuid.Parse(payload)
	s.pending.Lock()
	if err == nil {
		set[id] = true
	} else {
		s.pending.lookAgain = true
	}
	s.pending.Unlock()
	s.kick()
}

func (s *Service) kick() {
	s.wake.Poke()
}

func (s *Service) run(ctx context.Context) {
	grace := time.NewTicker(s.opts.ReturnGrace)
	defer grace.Stop()
	missing, err := s.lost(ctx)
	if err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "cannot look for agents of servers that ended, trying again", "err", err)
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			if err = s.act(ctx); err != nil {
				s.pending.Lock()
				s.pending.lookAgain = true
				s.pending.Unlock()
				time.AfterFunc(retryAfter, s.kick)
			}
		case <-grace.C:
			s.conns.Lock()
			s.conns.returned = nil // from here on a connection counts as new
			s.conns.Unlock()
			if err = s.sweep(ctx, missing); err == nil {
				missing, err = s.lost(ctx)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "cannot update agents' states, trying again", "err", err)
		}
	}
}

// act handles the recorded notifications.
func (s *Service) act(ctx context.Context) error {
	s.pending.Lock()
	revoked, shutdown, again := slices.Collect(maps.Keys(s.pending.revoked)), slices.Collect(maps.Keys(s.pending.shutdown)), s.pending.lookAgain
	changed := slices.Collect(maps.Keys(s.pending.manifest))
	clear(s.pending.manifest)
	clear(s.pending.revoked)
	clear(s.pending.shutdown)
	s.pending.lookAgain = false
	s.pending.Unlock()

	for _, id := range shutdown {
		if c := s.connection(id); c != nil {
			c.askShutdown("the workspace is stopping")
		}
	}
	for _, id := range changed {
		if c := s.connection(id); c != nil {
			c.announceManifest()
		}
	}
	s.revoke(revoked)
	if !again {
		return nil
	}
	s.conns.Lock()
	connected := slices.Collect(maps.Keys(s.conns.byAgent))
	s.conns.Unlock()
	admitted, err := s.admitted(ctx, connected, true)
	if err != nil {
		return err
	}
	for _, id := range admitted {
		if c := s.connection(id); c != nil {
			c.announceManifest()
		}
	}
	s.revoke(slices.DeleteFunc(connected, func(id uuid.UUID) bool { return slices.Contains(admitted, id) }))
	return nil
}

func (s *Service) revoke(ids []uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	for _, id := range ids {
		if c := s.connection(id); c != nil {
			c.end(errRevoked)
		}
	}
	s.endTerminals(func(t *openTerminal) bool { return slices.Contains(ids, t.agent) })
	s.opts.Mesh.RevokeAgents(ids...)
}

// present returns the agents that are connected to this server.
func (s *Service) present() []uuid.UUID {
	s.conns.Lock()
	defer s.conns.Unlock()
	connected := []uuid.UUID{}
	return slices.AppendSeq(connected, maps.Keys(s.conns.byAgent))
}

// lost returns the agents that the database says are connected although their server has ended. They may come back to
// any server.
func (s *Service) lost(ctx context.Context) ([]uuid.UUID, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.opts.DB.ListLostAgents(ctx, dbsqlc.ListLostAgentsParams{
		Connected: s.present(), ServerID: s.opts.ServerID, LifeSeconds: database.ServerLifetime.Seconds(),
	})
}

// sweep marks those agents as disconnected that are still lost. All servers do this; the first one finds them.
func (s *Service) sweep(ctx context.Context, missing []uuid.UUID) error {
	if len(missing) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return s.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		gone, err := q.SweepAgents(ctx, dbsqlc.SweepAgentsParams{
			At: now(), Ids: missing, Connected: s.present(), ServerID: s.opts.ServerID,
			LifeSeconds: database.ServerLifetime.Seconds(),
		})
		if err != nil {
			return err
		}
		for _, a := range gone {
			if err := announce(ctx, q, a.ID, a.WorkspaceID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *Service) connection(id uuid.UUID) *connection {
	s.conns.Lock()
	defer s.conns.Unlock()
	return s.conns.byAgent[id]
}

// announce notifies pages about the agent and its workspace when the transaction commits.
func announce(ctx context.Context, q *dbsqlc.Queries, agent uuid.UUID, workspace *uuid.UUID) error {
	if err := q.NotifyAgent(ctx, agent); err != nil {
		return err
	}
	if workspace == nil {
		return nil
	}
	return q.NotifyWorkspace(ctx, *workspace)
}

// now returns the time with the precision that PostgreSQL keeps.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }
