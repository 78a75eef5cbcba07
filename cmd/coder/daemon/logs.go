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
	level   *slog.LevelVar // of the log that Logger returned
}

// Flags declares the flags.
func (opts *Logs) Flags(f *pflag.FlagSet) {
	f.BoolVar(&opts.json, "log-json", false, "log as JSON, one object per line")
}

// Logger returns the log that the flags describe.
func (opts *Logs) Logger(w io.Writer) *slog.Logger {
	opts.level = new(slog.LevelVar)
	options := &slog.HandlerOptions{Level: opts.level}
	if opts.Verbose {
		opts.level.Set(slog.LevelDebug)
	}
	if opts.json {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Quiet is for use after Logger. It keeps all but warnings and errors from the log, unless it is verbose: for a person
// at a terminal who has seen how a daemon starts.
func (opts *Logs) Quiet() {
	if !opts.Verbose {
		opts.level.Set(slog.LevelWarn)
	}
}
