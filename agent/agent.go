package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/memory"
)

// Run runs an agent until ctx ends, the server asks it to end, or (with OwnProcess) a signal does: it then runs the
// stop scripts, reports, and returns nil. It returns a fault when the server refuses the token, and ErrForgotten with
// Returning when no start will admit the agent again.
func Run(ctx context.Context, opts Options) error {
	if !slices.Contains([]string{"linux", "windows", "darwin"}, runtime.GOOS) {
		return fault.New(fault.Invalid, "The workspace agent runs on Linux, macOS and Windows, not on %s", runtime.GOOS)
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
	opts.StateDir = StateDir(opts.StateDir)
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
		// A terminal that closes must not end the workspace. The signal is caught, not ignored: children would inherit
		// that.
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
		return ErrForgotten
	default:
		return err
	}
	d, err := newDaemon(opts, mesh)
	if err != nil {
		mesh.Close()
		return err
	}
	if opts.OwnProcess {
		d.wg.Go(func() { sweep(opts.Logger) })
	}
	return d.run(ctx, restarts)
}

// Memory limits of an agent. The collector counts 33 MiB of receive buffers, of which an idle agent touches few pages;
// the rest of the limit is for bulk traffic in flight. Collecting more often costs a tenth of its speed.
const (
	memoryLimit = 128 << 20 // bytes
	gcPercent   = 100
)

// TuneMemory bounds the memory of a process that occasionally carries bulk traffic, and returns memory to the system
// after a burst. Use it only in a process that is nothing but an agent. The caller must stop the result.
func TuneMemory() *memory.Returner {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	return memory.Return(memory.Quiet, nil)
}

// AutostartDir returns the folder of the service that starts the agent of this account: see package autostart.
func AutostartDir() string { return filepath.Join(defaultStateDir(proc.CurrentUser()), "autostart") }

// StateDir returns the folder of the agent's state, given the one that Options name.
func StateDir(given string) string {
	if given != "" {
		return given
	}
	return defaultStateDir(proc.CurrentUser())
}

func defaultStateDir(user proc.User) string {
	dir := filepath.Join(append([]string{user.Home}, stateFolder...)...)
	if os.MkdirAll(dir, 0o700) == nil {
		return dir
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("codermesh-agent-%d", user.UID))
}
