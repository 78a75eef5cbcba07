//go:build !unix

package embedded

import (
	"context"
	"log/slog"

	"github.com/codermesh/codermesh/internal/fault"
)

// Options say where PostgreSQL works.
type Options struct {
	Dir    string
	Logger *slog.Logger
	BinDir string
}

// Server is a running PostgreSQL; there is none on this system.
type Server struct{}

// Start says that this system is not one of those where PostgreSQL is run for the server.
func Start(context.Context, Options) (*Server, error) { return nil, unsupported() }

// Install is a set of PostgreSQL's programs; there is none on this system.
type Install struct{}

// Find says the same as Start.
func Find(context.Context, string, string) (Install, error) { return Install{}, unsupported() }

// Attach says the same.
func Attach(context.Context, Options) (*Server, error) { return nil, unsupported() }

// RunningURL says the same.
func RunningURL(string) (string, error) { return "", unsupported() }

// Fetch says the same.
func Fetch(context.Context, string, *slog.Logger) error { return unsupported() }

func unsupported() error {
	return fault.New(fault.Unavailable, "The server cannot run its own PostgreSQL on this system.").
		WithDetail("Name a database with --postgres-url.")
}

// URL is that of no database.
func (*Server) URL() string { return "" }

// Stop does nothing.
func (*Server) Stop(context.Context) error { return nil }
