package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/internal/secret"
)

// Options configures an agent.
type Options struct {
	Logger *slog.Logger // nil discards
	// URL is the server's base URL.
	URL *url.URL
	// Token is the agent's credential.
	Token secret.Token
	// StateDir records which scripts have run, in one folder per agent. Empty means a folder in the account's state folder, or in the
	// temporary folder if that is not writable.
	StateDir string
	// LogDir receives the scripts' output. Empty means the temporary folder.
	LogDir string
	// HTTPClient and TLS are used for the coordinator's websocket, TLS also for relays. nil means the defaults.
	HTTPClient *http.Client
	TLS        *tls.Config
	// Header is added to requests to the server. nil means none.
	Header http.Header
	// RelayOnly turns direct paths off.
	RelayOnly bool
	// OwnProcess is set if the process runs nothing but the agent: Run then reacts to SIGTERM and SIGINT, tunes the garbage collector, and
	// changes to the workspace's folder.
	OwnProcess bool
	// Terminals holds the reconnecting terminals. If nil this process holds them, and they end with it.
	Terminals Terminals
	// StatsInterval is how often the agent reports that the workspace is in use. 0 means a minute.
	StatsInterval time.Duration
	// MonitorInterval is how often the agent measures the memory and the volumes that its template monitors. 0 means 10 seconds.
	MonitorInterval time.Duration
	// Stopped is called when the workspace stops but the machine may outlive that, or the server has refused an agent that may have missed the
	// stop, with the token with which the next start admits the agent. Run then stops and returns nil; the caller should start the process again with that token and Returning. If nil, the agent ends for good.
	Stopped func(secret.Token)
	// Returning is set if this is the agent of a workspace that stopped: Run waits until a start admits it, and returns nil if none ever will.
	Returning bool
	// Join replaces the coordinator and the mesh node, for agents inside another program. nil means the real ones.
	Join func(ctx context.Context) (Mesh, error)
}

// stopTimeout bounds an orderly shutdown: stop scripts, last reports and logs.
const (
	stopTimeout  = 2 * time.Minute
	flushTimeout = 5 * time.Second
)

// ErrRestart is returned by Run with OwnProcess after SIGUSR1. The caller must start the process again; terminals that outlive it still run.
var ErrRestart = errors.New("the agent is to be restarted")

// Run runs an agent until ctx ends, the server asks it to end, or (with OwnProcess) a signal does: it then runs the stop
// scripts, reports, and returns nil. It returns a fault when the server refuses the token.
func Run(ctx context.Context, opts Options) error {
	if runtime.GOOS != "linux" && runtime.GOOS != "windows" {
		return fault.New(fault.Invalid, "The workspace agent runs on Linux and Windows, not on %s", runtime.GOOS)
	}
	if opts.Join == nil && (opts.URL == nil || opts.Token == "") {
		return fault.New(fault.Invalid, "The agent needs the server's URL and a token").
			WithDetail("set CODER_AGENT_URL and CODER_AGENT_TOKEN, as the workspace's start script does")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.LogDir == "" {
		opts.LogDir = os.TempDir()
	}
	if opts.StateDir == "" {
		opts.StateDir = defaultStateDir(proc.CurrentUser())
	}
	// Resolved now, because the process changes its folder later.
	stateDir, stateErr := filepath.Abs(opts.StateDir)
	logDir, logErr := filepath.Abs(opts.LogDir)
	if err := errors.Join(stateErr, logErr); err != nil {
		return fmt.Errorf("resolve folders: %w", err)
	}
	opts.StateDir, opts.LogDir = stateDir, logDir
	if opts.OwnProcess {
		defer TuneMemory().Stop()
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		// A terminal that closes must not end the workspace. The signal is caught, not ignored: children would inherit that.
		hangups := make(chan os.Signal, 1)
		signal.Notify(hangups, syscall.SIGHUP)
		defer signal.Stop(hangups)
	}
	restarts := restartSignals(opts.OwnProcess)
	defer signal.Stop(restarts)
	mesh, err := join(ctx, opts)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil // it was asked to end while it waited
	case opts.Returning && fault.CodeOf(err) == fault.Unauthenticated:
		opts.Logger.Info("no start will admit this agent again", "reason", err)
		return nil
	default:
		return err
	}
	d, err := newDaemon(opts, mesh)
	if err != nil {
		mesh.Close()
		return err
	}
	if opts.OwnProcess {
		d.wg.Go(d.sweep)
	}
	return d.run(ctx, restarts)
}

// Memory limits of an agent. The collector counts 33 MiB of receive buffers, of which an idle agent touches few pages; the rest of the
// limit is for bulk traffic in flight. Collecting more often costs a tenth of its speed.
const (
	memoryLimit = 128 << 20 // bytes
	gcPercent   = 100
)

// TuneMemory bounds the memory of a process that occasionally carries bulk traffic, and returns memory to the system after a burst. Use it
// only in a process that is nothing but an agent. The caller must stop the result.
func TuneMemory() *memory.Returner {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	return memory.Return(memory.Quiet, nil)
}

// AutostartDir returns the folder of the service that starts the agent of this account: see package autostart.
func AutostartDir() string { return filepath.Join(defaultStateDir(proc.CurrentUser()), "autostart") }

func defaultStateDir(user proc.User) string {
	dir := filepath.Join(append([]string{user.Home}, stateFolder...)...)
	if os.MkdirAll(dir, 0o700) == nil {
		return dir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("codermesh-agent-%d", user.UID))
}
