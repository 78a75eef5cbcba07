package laptop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshdns"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/netio"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/meshclient"
	"github.com/codermesh/codermesh/v2/tailnet"
	"github.com/codermesh/codermesh/v2/tailnet/tunnel"
)

const (
	// dialTimeout bounds the wait for an introduction and the agent's answer, as long as programs wait for one to a
	// SYN.
	dialTimeout = 15 * time.Second
	// readGap is the least time between two readings of the list of workspaces.
	readGap = 500 * time.Millisecond
	// usageEvery is how often the server hears which workspaces are in use.
	usageEvery = time.Minute
)

// ServeOptions are what the server needs. All are required, except the logger.
type ServeOptions struct {
	Client  *sdk.Client
	Mesh    *meshclient.Client
	Device  int          // the descriptor of what the keeper created
	Control net.Listener // of coder connect status and down; the server closes it
	Setup   Setup
	Ready   func() // called once, when names resolve
	Logger  *slog.Logger
}

type server struct {
	opts  ServeOptions
	log   *slog.Logger
	dir   *Directory
	names *meshdns.Server
	wake  notify.Wake // the list of workspaces may have changed
	since time.Time

	mu    sync.Mutex // guards the field below
	inUse map[uuid.UUID]int
}

// Serve carries what programs send, until ctx ends, someone asks for the end, or the session is over. It blocks.
func Serve(ctx context.Context, opts ServeOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	defer opts.Control.Close()
	me, err := opts.Client.User(ctx, sdk.Me)
	if err != nil {
		return err
	}
	s := &server{
		opts: opts, log: opts.Logger, dir: NewDirectory(me.ID), wake: notify.NewWake(), since: time.Now(), inUse: map[uuid.UUID]int{},
	}
	names := meshdns.Options{Prefix: tailnet.Prefix, Logger: s.log}
	if file := opts.Setup.Original; file != "" {
		names.Resolvers = func() ([]string, error) { return meshdns.Resolvers(file) }
	}
	s.names = meshdns.New(names)
	if err := s.read(ctx); err != nil {
		return err
	}
	t, err := tunnel.New(opts.Device, tunnel.Options{
		Machine: opts.Setup.Machine, Addr: NameServer, Prefix: tailnet.Prefix, Logger: s.log,
		AcceptTCP: s.acceptTCP, AcceptUDP: s.acceptUDP, Echo: s.echo,
	})
	if err != nil {
		return err
	}
	defer t.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel(nil)
	running.Go(func() { cancel(s.control(ctx, me.Username, func() { cancel(nil) })) })
	running.Go(func() { cancel(s.follow(ctx)) })
	running.Go(func() { cancel(s.reread(ctx)) })
	running.Go(func() { s.reportUsage(ctx) })
	carried := make(chan error, 1)
	go func() { carried <- t.Run() }()
	opts.Ready()
	select {
	case err = <-carried:
		return err
	case <-ctx.Done():
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// read reads the list of workspaces: the user's own, and what is shared with the user.
func (s *server) read(ctx context.Context) error {
	var all []sdk.Workspace
	seen := map[uuid.UUID]bool{}
	for _, q := range []string{"owner:me", "shared:true"} {
		list, err := s.opts.Client.AllWorkspaces(ctx, q, "")
		if err != nil {
			return err
		}
		for _, ws := range list {
			if !seen[ws.ID] {
				seen[ws.ID] = true
				all = append(all, ws)
			}
		}
	}
	for _, a := range s.dir.Set(all) {
		s.opts.Mesh.Forget(a.ID) // ends its connections
	}
	return nil
}

// follow notes when the list of workspaces may have changed, until ctx ends or the session is over.
func (s *server) follow(ctx context.Context) error {
	pause := backoff.Backoff{Min: time.Second, Max: 30 * time.Second}
	for {
		for kind, err := range s.opts.Client.Events(ctx) {
			if over(err) {
				return err
			}
			switch kind {
			case sdk.EventReady, sdk.EventReset, sdk.EventWorkspace, sdk.EventBuild, sdk.EventAgent, sdk.EventUser:
				pause.Reset()
				s.wake.Poke()
			}
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// reread reads the list of workspaces whenever it may have changed, until ctx ends or the session is over.
func (s *server) reread(ctx context.Context) error {
	pause := backoff.Backoff{Min: readGap, Max: 30 * time.Second}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		}
		err := s.read(ctx)
		switch {
		case over(err):
			return err
		case err != nil && ctx.Err() == nil:
			s.log.Warn("cannot read the list of workspaces", "err", err)
			s.wake.Poke()
		default:
			pause.Reset()
		}
		if err := pause.Wait(ctx); err != nil {
			return err
		}
	}
}

// over reports whether an error means that the session has ended.
func over(err error) bool { return err != nil && fault.CodeOf(err) == fault.Unauthenticated }

// dial opens a connection to the agent that has an address.
func (s *server) dial(ctx context.Context, network string, dst netip.AddrPort) (net.Conn, Agent, error) {
	a, ok := s.dir.At(dst.Addr())
	if !ok {
		return nil, a, errNone()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if err := s.opts.Mesh.Introduce(ctx, a.ID); err != nil {
		return nil, a, err
	}
	conn, err := s.opts.Mesh.Dial(ctx, network, a.ID, dst.Port())
	return conn, a, err
}

func (s *server) acceptTCP(ctx context.Context, dst netip.AddrPort) func(tunnel.Conn) {
	if dst.Addr() == NameServer {
		if dst.Port() != meshdns.Port {
			return nil
		}
		return func(c tunnel.Conn) {
			if c != nil {
				s.names.ServeTCP(ctx, c, s.directory)
			}
		}
	}
	if meshport.Reserved(dst.Port()) {
		return nil
	}
	conn, a, err := s.dial(ctx, "tcp", dst)
	if err != nil {
		s.log.Debug("connection refused", "to", dst, "err", err)
		return nil
	}
	return func(c tunnel.Conn) {
		if c == nil {
			conn.Close()
			return
		}
		defer s.use(a)()
		netio.Carry(ctx, c, conn)
	}
}

func (s *server) acceptUDP(ctx context.Context, dst netip.AddrPort) func(net.Conn) {
	if dst.Addr() == NameServer {
		if dst.Port() != meshdns.Port {
			return nil
		}
		return func(c net.Conn) { s.names.ServeUDP(ctx, c, s.directory) }
	}
	conn, a, err := s.dial(ctx, "udp", dst)
	if err != nil {
		s.log.Debug("flow refused", "to", dst, "err", err)
		return nil
	}
	return func(c net.Conn) {
		defer s.use(a)()
		netio.CarryDatagrams(ctx, c, conn)
	}
}

func (s *server) directory() meshdns.Directory { return s.dir }

// echo reports whether an agent answers on the mesh, so that programs measure the path to it.
func (s *server) echo(ctx context.Context, dst netip.Addr) bool {
	a, ok := s.dir.At(dst)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if s.opts.Mesh.Introduce(ctx, a.ID) != nil {
		return false
	}
	_, err := s.opts.Mesh.Ping(ctx, a.ID)
	return err == nil
}

// use counts a connection to a workspace until the function that it returns is called.
func (s *server) use(a Agent) func() {
	add := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.inUse[a.ID] += n; s.inUse[a.ID] == 0 {
			delete(s.inUse, a.ID)
		}
	}
	add(1)
	return func() { add(-1) }
}

// reportUsage keeps the server from stopping workspaces that are in use, until ctx ends.
func (s *server) reportUsage(ctx context.Context) {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	client := s.opts.Client.AtOnce()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, a := range s.dir.All() {
			s.mu.Lock()
			used := s.inUse[a.ID] > 0
			s.mu.Unlock()
			if used {
				// One lost report of many does no harm.
				_ = client.WorkspaceUsage(ctx, a.Workspace, sdk.UsageRequest{
					AgentID: a.ID, AppName: "reconnecting-pty",
				})
			}
		}
	}
}

// describe returns what coder connect status shows.
func (s *server) describe(user string) Status {
	st := Status{
		Server: s.opts.Client.URL().String(), User: user, Since: s.since, Keeper: os.Getppid(), Setup: s.opts.Setup,
	}
	for _, a := range s.dir.All() {
		_, introduced := s.opts.Mesh.Key(a.ID)
		st.Workspaces = append(st.Workspaces, Reachable{Agent: a, Introduced: introduced})
	}
	return st
}

// control answers coder connect status and down until ctx ends.
func (s *server) control(ctx context.Context, user string, down func()) error {
	defer context.AfterFunc(ctx, func() { s.opts.Control.Close() })()
	var answering sync.WaitGroup
	defer answering.Wait()
	for {
		conn, err := s.opts.Control.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return fmt.Errorf("accept on control socket: %w", err)
		}
		answering.Go(func() {
			defer conn.Close()
			if command := answer(conn, func() Status { return s.describe(user) }); command == commandDown {
				down()
			}
		})
	}
}
