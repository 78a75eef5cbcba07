package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/codermesh/codermesh/agent/proc"
)

const (
	handshakeTimeout  = 30 * time.Second // until the client speaks the protocol
	keepaliveInterval = 30 * time.Second
	// keepaliveLimit is how long a client may leave keepalives unanswered: longer than a laptop's nap between two trains.
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

// Options of a Server.
type Options struct {
	Logger *slog.Logger // nil discards
	// Environment is asked once per session and may block, until ctx ends, while the workspace learns what it is.
	Environment func(ctx context.Context) (Environment, error)
	// Session is told of every program that is started, with the variables that the client sent, and calls what it returns at
	// the program's end. nil: nobody counts.
	Session func(env *proc.Env) (end func())
}

// Server serves connections that carry SSH channels. Serve may be called for several listeners.
type Server struct {
	opt Options
	log *slog.Logger

	run    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex // guards the fields below
	closed bool
	conns  map[*conn]struct{}
	wg     sync.WaitGroup // connections and everything they started
}

// New returns a server that listens nowhere yet. Close it.
func New(opt Options) (*Server, error) {
	proc.DefaultSignals()
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Environment == nil {
		return nil, errors.New("new ssh server: it needs an environment")
	}
	s := &Server{opt: opt, log: opt.Logger, conns: make(map[*conn]struct{})}
	s.run, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Serve accepts connections until l is closed or Close is called, which is no error. It closes l. The clients speak sshmux; the
// connections of l must be encrypted, and come from peers that may use the workspace.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	stop := context.AfterFunc(s.run, func() { l.Close() })
	defer stop()
	for {
		raw, err := l.Accept()
		if err != nil {
			if s.run.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept ssh connection: %w", err)
		}
		if c := s.add(raw); c != nil {
			go s.serve(c)
		}
	}
}

// add counts a connection, or closes it and returns nil.
func (s *Server) add(raw net.Conn) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		raw.Close()
		if !s.closed {
			s.log.Warn("too many ssh connections", "peer", raw.RemoteAddr())
		}
		return nil
	}
	c := newConn(s, raw)
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	return c
}

func (s *Server) serve(c *conn) {
	defer s.wg.Done()
	c.serve()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Close ends every connection, hangs up every session, and waits for them. Processes that ignore the hangup are killed after
// killDelay.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		c.raw.Close()
	}
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
	return nil
}

// Sessions is how many connections are open.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}
