package daemon

import (
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// Logs are the flags for a daemon's log.
type Logs struct {
	// Verbose is the global flag.
	Verbose bool
	json    bool
}

// Flags declares the flags.
func (opts *Logs) Flags(f *pflag.FlagSet) {
	f.BoolVar(&opts.json, "log-json", false, "log as JSON, one object per line")
}

// Logger returns the log that the flags describe.
func (opts *Logs) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	if opts.Verbose {
		options.Level = slog.LevelDebug
	}
	if opts.json {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
