package relay

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"tailscale.com/derp"
	"tailscale.com/types/key"

	"github.com/codermesh/codermesh/v2/internal/backoff"
)

// greetTimeout bounds the exchange of keys on a connection between relays.
const greetTimeout = 10 * time.Second

// Follow forwards packets to the nodes that are connected to another relay, which must have the same MeshKey and serve
// the connections with ServeRelay, until ctx ends. dial returns a connection to that relay: both ends must have proven
// that they belong together, and what it carries must be encrypted, because DERP proves nothing about the relay that a
// mesh key is sent to. Follow dials again whenever the connection is lost. name is what Following and Home report. To
// forward packets in both directions, each relay follows the other.
func (s *Server) Follow(ctx context.Context, name string, dial func(context.Context) (net.Conn, error)) {
	state, end := s.beginFollowing(name)
	defer end()
	retry := backoff.Backoff{Min: 100 * time.Millisecond, Max: 2 * time.Second}
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err == nil {
			var followed bool
			if followed, err = s.follow(ctx, name, conn, state); followed {
				retry.Reset()
			}
		}
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		state.since, state.err = time.Time{}, err.Error()
		s.mu.Unlock()
		s.log.Debug("connection to another relay ended", "server", name, "err", err)
		if retry.Wait(ctx) != nil {
			return
		}
	}
}

// forwarder sends packets to the relay that Follow follows.
type forwarder struct {
	*derp.Client
	name string
}

func (f *forwarder) String() string { return f.name }

// follow follows another relay until the connection ends, and closes it. It reports whether the other relay told of its
// nodes.
func (s *Server) follow(ctx context.Context, name string, conn net.Conn, state *following) (followed bool, _ error) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	logf := func(format string, args ...any) {
		line := strings.TrimSpace(fmt.Sprintf(format, args...))
		s.log.Debug("connection to another relay", "server", name, "line", line)
	}
	if err := conn.SetDeadline(time.Now().Add(greetTimeout)); err != nil {
		return followed, fmt.Errorf("follow relay: %w", err)
	}
	out := &backlog{Conn: conn, table: &s.backlogs} // packets that gather cost one write
	rw := bufio.NewReadWriter(bufio.NewReaderSize(conn, readSize), bufio.NewWriter(out))
	client, err := derp.NewClient(s.relay.PrivateKey(), out, rw, logf, derp.MeshKey(s.relay.MeshKey()))
	if err != nil {
		return followed, fmt.Errorf("follow relay: %w", err)
	}
	if err := client.WatchConnectionChanges(); err != nil {
		return followed, fmt.Errorf("follow relay: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return followed, fmt.Errorf("follow relay: %w", err)
	}
	to := &forwarder{client, name}
	defer s.forget(to, state)
	for {
		msg, err := client.Recv()
		if err != nil {
			return followed, fmt.Errorf("follow relay: %w", err)
		}
		switch msg := msg.(type) {
		case derp.PeerPresentMessage: // of its own monitor at least
			if !followed {
				followed = true
				s.mu.Lock()
				state.since, state.err = time.Now(), ""
				s.mu.Unlock()
			}
			if msg.Flags&derp.PeerPresentIsMeshPeer == 0 {
				s.learn(msg.Key, to, state)
			}
		case derp.PeerGoneMessage:
			s.unlearn(msg.Peer, to, state)
		case derp.PingMessage:
			if err := client.SendPong(msg); err != nil {
				return followed, fmt.Errorf("follow relay: %w", err)
			}
		}
	}
}

// learn forwards a node's packets to another relay from now on. Only the goroutine of follow calls it, like unlearn and
// forget.
func (s *Server) learn(node key.NodePublic, to *forwarder, state *following) {
	s.mu.Lock()
	known := state.nodes[node]
	state.nodes[node] = true
	s.mu.Unlock()
	if !known {
		s.relay.AddPacketForwarder(node, to)
	}
}

func (s *Server) unlearn(node key.NodePublic, to *forwarder, state *following) {
	s.mu.Lock()
	known := state.nodes[node]
	delete(state.nodes, node)
	s.mu.Unlock()
	if known {
		s.relay.RemovePacketForwarder(node, to)
	}
}

// forget forwards nothing to another relay any more.
func (s *Server) forget(to *forwarder, state *following) {
	s.mu.Lock()
	nodes := state.nodes
	state.nodes = make(map[key.NodePublic]bool)
	s.mu.Unlock()
	for node := range nodes {
		s.relay.RemovePacketForwarder(node, to)
	}
}

// ServeRelay serves a connection on which another relay follows this one, until it ends, and closes it. The caller has
// made sure that the other end belongs to this deployment: see Follow.
func (s *Server) ServeRelay(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	own, in := s.backlogs.wrap(conn, strings.NewReader(""), true)
	s.relay.Accept(ctx, own, bufio.NewReadWriter(in, bufio.NewWriter(own)), conn.RemoteAddr().String())
}
