package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/secret"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Options configures an agent.
type Options struct {
	Logger *slog.Logger // nil discards
	// URL is the server's base URL.
	URL *url.URL
	// Token is the agent's credential.
	Token secret.Token
	// StateDir records which scripts have run, in one folder per agent. Empty means a folder in the account's state
	// folder, or in the temporary folder if that is not writable.
	StateDir string
	// LogDir receives the scripts' output. Empty means the temporary folder.
	LogDir string
	// HTTPClient and TLS are used for the coordinator's websocket, TLS also for relays. nil means the defaults.
	HTTPClient *http.Client
	TLS        *tls.Config
	// Header is added to requests to the server. nil means none.
	Header http.Header
	// Subsystems are what else runs the workspace, as CODER_AGENT_SUBSYSTEM says: envbox, envbuilder, exectrace. The
	// server ignores others.
	Subsystems []string
	// RelayOnly turns direct paths off.
	RelayOnly bool
	// OwnProcess is set if the process runs nothing but the agent: Run then reacts to SIGTERM and SIGINT, tunes the
	// garbage collector, and changes to the workspace's folder.
	OwnProcess bool
	// Terminals holds the reconnecting terminals. If nil this process holds them, and they end with it.
	Terminals Terminals
	// StatsInterval is how often the agent reports that the workspace is in use. 0 means a minute.
	StatsInterval time.Duration
	// MonitorInterval is how often the agent measures the memory and the volumes that its template monitors. 0 means 10
	// seconds.
	MonitorInterval time.Duration
	// Stopped is called when the workspace stops but the machine may outlive that, or the server has refused an agent
	// that may have missed the stop, with the token with which the next start admits the agent. Run then stops and
	// returns nil; the caller should start the process again with that token and Returning. If nil, the agent ends for
	// good.
	Stopped func(secret.Token)
	// Returning is set if this is the agent of a workspace that stopped: Run waits until a start admits it, and returns
	// ErrForgotten if none ever will.
	Returning bool
	// Join replaces the coordinator and the mesh node, for agents inside another program. nil means the real ones.
	Join func(ctx context.Context) (Mesh, error)
}

// ErrRestart is returned by Run with OwnProcess after SIGUSR1. The caller must start the process again; terminals that
// outlive it still run.
var ErrRestart = errors.New("the agent is to be restarted")

// ErrForgotten is returned by Run with Returning if the workspace will not start with this agent again.
var ErrForgotten = errors.New("no start of the workspace will admit this agent again")

// Terminals gives access to the terminals, which the keeper holds, because it outlives the agent's process, or else
// this process.
type Terminals interface {
	// Dial opens a connection for one viewer, whose first frame is a terminal.Start.
	Dial() (net.Conn, error)
	// Close ends the terminals of this process.
	Close() error
}

// Mesh is the agent's place in the mesh.
type Mesh interface {
	// Listen accepts connections to one of the agent's own ports.
	Listen(port uint16) (net.Listener, error)
	// HandleTCP and HandleUDP serve every other port, as tailnet.Node does.
	HandleTCP(choose func(src, dst netip.AddrPort) (func(net.Conn), bool))
	HandleUDP(choose func(src, dst netip.AddrPort) (func(net.Conn), bool))
	// DialServer connects to the server's RPC port. The connection ends when another server replaces that one.
	DialServer(ctx context.Context) (net.Conn, error)
	// ServerLastSeen returns since when the coordinator connection leads to the server that DialServer connected to
	// last, and when the connection last brought a sign of life. It returns zero times if there is no connection, or it
	// leads to another server.
	ServerLastSeen() (since, last time.Time)
	// Reconnected blocks until the coordinator welcomes the agent again, which may mean that the server is back.
	Reconnected(ctx context.Context) error
	// RelayLatency returns the round trip to the home relay, 0 while unknown.
	RelayLatency() time.Duration
	// Measure returns the state of the peers and the round trips to them, as tailnet.Node does.
	Measure(ctx context.Context, which func(uuid.UUID) bool) []tailnet.PeerStatus
	// Done is closed when the server has refused the agent for good; Err returns the reason.
	Done() <-chan struct{}
	Err() error
	// Close leaves the mesh.
	Close() error
}
