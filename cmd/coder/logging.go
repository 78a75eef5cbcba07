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

// serverGCPercent is how much the server's memory may grow between two collections, as a share of what is alive. It is small because most
// of that is buffers of mesh nodes and queues of the relay, some 0.7 MB for each connected agent, of which few pages are ever touched. There
// is no limit besides: the collector counts those buffers too, so under a limit a server with many agents would do nothing but collect.
const serverGCPercent = 20

// boundServerMemory bounds the process's garbage, unless the environment does. The caller must stop the returned Returner.
func boundServerMemory() *memory.Returner {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGCPercent)
	}
	return memory.Return(memory.Quiet)
}
