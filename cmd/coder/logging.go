package main

import (
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/pflag"
)

// logOptions are what the flags of daemons say about their logs.
type logOptions struct {
	json    bool
	verbose bool // the global flag
}

func (o *logOptions) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "log-json", false, "log as JSON, one object per line")
}

func (o *logOptions) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if o.verbose {
		options.Level = slog.LevelDebug
	}
	if o.json {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Memory of the server: the collector works harder from serverMemoryLimit on, and grows the heap by serverGCPercent before.
const (
	serverMemoryLimit = 256 << 20 // bytes
	serverGCPercent   = 50
)

func boundServerMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(serverMemoryLimit)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(serverGCPercent)
	}
}
