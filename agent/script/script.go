package script

import (
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/proc"
)

// Script is one script of a manifest.
type Script struct {
	ID      uuid.UUID
	Name    string
	Text    string
	Timeout time.Duration // 0 means none
	LogPath string        // may start with ~ or hold variables; relative is below the log folder; empty means a default
	Output  io.Writer     // receives the output; must not block for long. nil discards it

	noFile bool
}

// Result describes how a script ended.
type Result struct {
	Script         uuid.UUID
	Started, Ended time.Time
	ExitCode       int // 128 and the signal's number after a signal; 127 if it could not be started
	TimedOut       bool
	Err            error // why it could not be run, nil otherwise
}

// OK reports whether the script succeeded.
func (r Result) OK() bool { return r.Err == nil && r.ExitCode == 0 && !r.TimedOut }

// Environment is the environment of scripts.
type Environment struct {
	User      proc.User
	Env       []string // the complete environment, without the agent's own variables
	Directory string   // where scripts start; the home folder if it does not exist
}

// Options configures a Runner. The folders are required; the Runner makes them when needed.
type Options struct {
	Logger *slog.Logger // nil discards
	// StateDir holds the scripts' texts, their data folders and a folder for programs that they install.
	StateDir string
	// LogDir holds the scripts' log files.
	LogDir string
}

// Runner runs scripts. The caller must close it.
type Runner struct {
	opts Options
	log  *slog.Logger

	mu      sync.Mutex // guards the fields below
	closed  bool
	running map[*run]struct{}
	wg      sync.WaitGroup
}

// New returns a Runner.
func New(opts Options) *Runner {
	proc.DefaultSignals()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{opts: opts, log: opts.Logger, running: make(map[*run]struct{})}
}

// BinDir returns the folder for programs that scripts install; it belongs on PATH.
func (r *Runner) BinDir() string { return filepath.Join(r.opts.StateDir, "bin") }

func (r *Runner) dataDir(id uuid.UUID) string {
	return filepath.Join(r.opts.StateDir, "data", id.String())
}

// maxLogFile is how much of a script's output its file keeps, in bytes.
const maxLogFile = 64 << 20

// limitedFile writes the first bytes to a file, and then a line that reports that the rest is not kept.
type limitedFile struct {
	w      io.Writer
	left   int
	failed func(error) // is told why w failed, once
}

func (l *limitedFile) Write(b []byte) (int, error) {
	if l.left <= 0 {
		return len(b), nil
	}
	keep := b[:min(len(b), l.left)]
	_, err := l.w.Write(keep)
	l.left -= len(keep)
	switch {
	case err != nil:
		l.left = 0 // a full disk must not end the script
		l.failed(err)
	case l.left <= 0 && !bytes.HasSuffix(b, []byte("\n")):
		_, _ = io.WriteString(l.w, "\n[the rest is not kept]\n")
	}
	return len(b), nil
}

// head keeps the first bytes. It is safe for concurrent use, because background programs may keep printing.
type head struct {
	mu   sync.Mutex // guards the fields below
	text []byte
	left int
}

func (h *head) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keep := b[:min(len(b), h.left)]
	h.text = append(h.text, keep...)
	h.left -= len(keep)
	return len(b), nil
}

func (h *head) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.text)
}
