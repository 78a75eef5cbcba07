package main

import (
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"

	"github.com/codermesh/codermesh/internal/memory"
)

// logOptions are the log flags of daemons.
type logOptions struct {
	json    bool
	verbose bool // the global flag
}

func (opts *logOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&opts.json, "log-json", false, "log as JSON, one object per line")
}

func (opts *logOptions) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if opts.verbose {
		options.Level = slog.LevelDebug
	}
	if opts.json {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Bounds of the server's memory. The collector counts some 32 MiB of receive buffers for each mesh node, of which few pages are ever
// touched: growth by serverGCPercent is a share of those, too. Little else is alive, so collecting often is cheap.
const (
	serverMemoryLimit = 256 << 20 // bytes
	serverGCPercent   = 10
)

// boundServerMemory bounds the process's memory, unless the environment does. The caller must stop the returned Returner.
func boundServerMemory() *memory.Returner {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(serverMemoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGCPercent)
	}
	return memory.Return(memory.Quiet)
}
