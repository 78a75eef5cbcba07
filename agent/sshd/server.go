package sshd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gliderlabs/ssh"
	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"

	"github.com/codermesh/codermesh/agent/proc"
	"github.com/codermesh/codermesh/internal/buildinfo"
)

const (
	handshakeTimeout  = 30 * time.Second
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

// Signer is a host key.
type Signer = gossh.Signer

// Options of a Server.
type Options struct {
	Logger *slog.Logger // nil discards
	// HostKeys has one key per algorithm, at least one.
	HostKeys []Signer
	// Environment is asked once per session and may block, until ctx ends, while the workspace learns what it is.
	Environment func(ctx context.Context) (Environment, error)
	// Session is told of every program that is started, with the variables that the client sent, and calls what it returns at
	// the program's end. nil: nobody counts.
	Session func(env *proc.Env) (end func())
}

// Server serves SSH connections. Serve may be called for several listeners.
type Server struct {
	opt Options
	log *slog.Logger
	ssh *ssh.Server

	run    context.Context // ends with Close
	cancel context.CancelFunc

	grown atomic.Int64 // bytes by which windows have grown

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
	if len(opt.HostKeys) == 0 || opt.Environment == nil {
		return nil, errors.New("new ssh server: it needs a host key and an environment")
	}
	s := &Server{opt: opt, log: opt.Logger, conns: make(map[*conn]struct{})}
	s.run, s.cancel = context.WithCancel(context.Background())
	s.ssh = &ssh.Server{
		ConnCallback:         attach,
		Version:              "codermesh_" + buildinfo.Version(),
		ServerConfigCallback: s.config,
		ConnectionFailedCallback: func(c net.Conn, err error) {
			s.log.Debug("ssh handshake failed", "peer", c.RemoteAddr(), "err", err)
		},
		ChannelHandlers: map[string]ssh.ChannelHandler{
			"session":                        s.channel(s.serveSession),
			"direct-tcpip":                   s.channel(s.serveDirectTCP),
			"direct-streamlocal@openssh.com": s.channel(s.serveDirectUnix),
		},
		RequestHandlers: map[string]ssh.RequestHandler{
			"tcpip-forward":                          s.request((*conn).forwardTCP),
			"cancel-tcpip-forward":                   s.request((*conn).cancelForwardTCP),
			"streamlocal-forward@openssh.com":        s.request((*conn).forwardUnix),
			"cancel-streamlocal-forward@openssh.com": s.request((*conn).cancelForwardUnix),
		},
	}
	for _, key := range opt.HostKeys {
		s.ssh.AddHostKey(key)
	}
	return s, nil
}

// config is made anew for every connection.
func (s *Server) config(ctx ssh.Context) *gossh.ServerConfig {
	c := connOf(ctx)
	config := &gossh.ServerConfig{
		NoClientAuth: true,
		NoClientAuthCallback: func(gossh.ConnMetadata) (*gossh.Permissions, error) {
			c.authenticated()
			return nil, nil
		},
	}
	config.Ciphers = ciphers()
	return config
}

// ciphers is what the server offers. The client's order decides, and OpenSSH puts chacha20 first, which is three times slower
// than AES-GCM where the processor has instructions for it; there, chacha20 is offered to nobody.
func ciphers() []string {
	fast := []string{gossh.CipherAES128GCM, gossh.CipherAES256GCM, gossh.CipherAES128CTR, gossh.CipherAES256CTR}
	if cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ || cpu.ARM64.HasAES && cpu.ARM64.HasPMULL {
		return fast
	}
	return append([]string{gossh.CipherChaCha20Poly1305}, fast...)
}

// Serve accepts connections until l is closed or Close is called, which is no error. It closes l.
func (s *Server) Serve(l net.Listener) error { return s.serveAll(l, false) }

// ServeMux is Serve for clients that speak sshmux, on a listener whose connections are encrypted and come from whom they say.
func (s *Server) ServeMux(l net.Listener) error { return s.serveAll(l, true) }

func (s *Server) serveAll(l net.Listener, plain bool) error {
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
		if c := s.add(raw, plain); c != nil {
			go s.serve(c)
		}
	}
}

// HandleConn serves one connection and returns when it has ended.
func (s *Server) HandleConn(raw net.Conn) {
	if c := s.add(raw, false); c != nil {
		s.serve(c)
	}
}

// add counts a connection, or closes it and returns nil.
func (s *Server) add(raw net.Conn, plain bool) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		raw.Close()
		if !s.closed {
			s.log.Warn("too many ssh connections", "peer", raw.RemoteAddr())
		}
		return nil
	}
	c := newConn(s, raw, plain)
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
		c.stream.Close()
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
