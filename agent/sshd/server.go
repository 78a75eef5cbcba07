package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/v2/agent/proc"
	"github.com/codermesh/codermesh/v2/internal/connset"
)

const (
	handshakeTimeout  = 30 * time.Second // until the client speaks the protocol
	keepaliveInterval = 30 * time.Second
	// keepaliveLimit is how long a client may leave keepalives unanswered: a laptop may sleep between two trains.
	keepaliveLimit = 30 * time.Minute
	maxConns       = 256
	maxChannels    = 256 // per connection, sessions and forwards together
	maxListeners   = 64  // per connection
)

// Environment is what a session starts with.
type Environment struct {
	User      proc.User
	Env       []string // complete, without the agent's own variables
	Directory string   // where sessions start; the home folder if it does not exist
	MOTDFile  string   // shown to interactive shells; empty means none
}

// Options configures a Server.
type Options struct {
	Logger *slog.Logger // nil discards
	// Environment is called once per session. It must not block.
	Environment func() Environment
	// Session is called for every program that the server starts, with its connection and the variables that the client
	// sent; the returned function is called when the program has ended. If Session is nil, the server calls neither.
	Session func(conn net.Conn, env *proc.Env) (end func())
}

// Server serves connections that carry SSH channels. Serve may be called for several listeners.
type Server struct {
	opts  Options
	log   *slog.Logger
	conns *connset.Set

	run       context.Context // ends with Close
	cancel    context.CancelFunc
	processes sync.WaitGroup // what connections have started
}

// New returns a server without listeners: see Serve. The caller must close it.
func New(opts Options) (*Server, error) {
	proc.DefaultSignals()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Environment == nil {
		return nil, errors.New("new ssh server: it needs an environment")
	}
	s := &Server{opts: opts, log: opts.Logger}
	s.conns = connset.New(connset.Options{Limit: maxConns, Refused: func(conn net.Conn) {
		s.log.Warn("too many ssh connections", "peer", conn.RemoteAddr())
	}})
	s.run, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve accepts connections until l is closed or Close is called, and then returns nil. It closes l. The clients speak
// sshmux; the connections of l must be encrypted, and come from peers that may use the workspace.
func (s *Server) Serve(l net.Listener) error {
	if err := s.conns.Serve(l, func(raw net.Conn) { newConn(s, raw).serve() }); err != nil {
		return fmt.Errorf("accept ssh connection: %w", err)
	}
	return nil
}

// Close ends every connection, hangs up every session, and waits for them. Processes that ignore the hangup are killed
// after killDelay.
func (s *Server) Close() error {
	err := s.conns.CloseAll() // before the hangup: a client must not take it for the end of its program
	s.cancel()
	err = errors.Join(err, s.conns.Close())
	s.processes.Wait()
	return err
}

// Sessions returns the number of open connections.
func (s *Server) Sessions() int { return s.conns.Len() }
