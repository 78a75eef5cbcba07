//go:build !unix

package embedded

import (
	"context"
	"log/slog"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Options configures where PostgreSQL works.
type Options struct {
	Dir    string
	Logger *slog.Logger
	BinDir string
}

// Server is a running PostgreSQL. This system does not support it.
type Server struct{}

// Start returns an error: the server cannot run PostgreSQL on this system.
func Start(context.Context, Options) (*Server, error) { return nil, unsupported() }

// Install is a set of PostgreSQL's programs. This system does not support it.
type Install struct{}

// Find returns the same error as Start.
func Find(context.Context, string, string) (Install, error) { return Install{}, unsupported() }

// Attach returns the same error as Start.
func Attach(context.Context, Options) (*Server, error) { return nil, unsupported() }

// RunningURL returns the same error as Start.
func RunningURL(string) (string, error) { return "", unsupported() }

// Fetch returns the same error as Start.
func Fetch(context.Context, string, *slog.Logger) error { return unsupported() }

func unsupported() error {
	return fault.New(fault.Unavailable, "The server cannot run its own PostgreSQL on this system.").
		WithDetail("Name a database with --postgres-url.")
}

// URL returns "".
func (*Server) URL() string { return "" }

// Stop does nothing.
func (*Server) Stop(context.Context) error { return nil }
