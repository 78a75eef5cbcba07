package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	// introduceTimeout bounds the wait for an agent that is not connected: a user is waiting for the answer.
	introduceTimeout = 5 * time.Second
	// dialTimeout bounds a connection to a known agent. A lost handshake is repeated within it.
	dialTimeout = 15 * time.Second
	// keepAgent is how long this server stays introduced to an agent after its last connection ended.
	keepAgent = time.Minute
)

// introductions counts the users of the introduction to each agent, so that it can be given up.
type introductions struct {
	sync.Mutex
	closed bool
	byID   map[uuid.UUID]*introduction
}

type introduction struct {
	uses int
	idle *time.Timer // runs while no connection uses it
}

// DialAgent opens a TCP connection from this server's node to a port of an agent. It does not check permissions: the
// caller must have done so. It blocks until the connection is established, ctx ends, or a few seconds have shown that
// the agent is not connected.
//
// Errors are fault.Unavailable with a message for users, fault.NotFound for a revoked agent, or those of the context.
// If nothing listens on the port, the connection is accepted, and reset as soon as the agent has found that out. The
// connection ends when the agent's workspace stops. It has a CloseWrite method.
func (s *Service) DialAgent(ctx context.Context, agentID uuid.UUID, port uint16) (net.Conn, error) {
	raw, release, err := s.dial(ctx, "tcp", agentID, port)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(halfCloser)
	if !ok { // tailnet's TCP connections satisfy this
		raw.Close()
		release()
		return nil, fmt.Errorf("dial agent %s: a %T cannot be closed by halves", agentID, raw)
	}
	return &agentConn{halfCloser: conn, release: release}, nil
}

// DialAgentUDP is DialAgent for a flow of datagrams. Each Write sends one.
func (s *Service) DialAgentUDP(ctx context.Context, agentID uuid.UUID, port uint16) (net.Conn, error) {
	raw, release, err := s.dial(ctx, "udp", agentID, port)
	if err != nil {
		return nil, err
	}
	return &agentFlow{Conn: raw, release: release}, nil
}

// dial connects to an agent, and keeps this server introduced to it until release is called.
func (s *Service) dial(
	ctx context.Context, network string, agentID uuid.UUID, port uint16,
) (_ net.Conn, release func(), err error) {
	release, err = s.introduce(ctx, agentID)
	if err != nil {
		return nil, nil, err
	}
	dial, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := s.node.Dial(dial, network, netip.AddrPortFrom(tailnet.Addr(agentID), port))
	if err == nil {
		return raw, release, nil
	}
	release()
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("dial agent %s: %w", agentID, ctx.Err())
	}
	return nil, nil, fault.New(fault.Unavailable, "The workspace's agent does not answer on the mesh: %w", err).
		WithDetail("It may have stopped or lost its network. Try again in a moment.")
}

// AgentContested reports whether a process other than the connected one has recently tried to be this agent.
func (s *Service) AgentContested(agentID uuid.UUID) bool {
	return s.coord.Contested(agentID)
}

// LastSeen returns when the coordinator last heard from an agent. It returns the zero time for an agent that is
// unknown.
func (s *Service) LastSeen(agentID uuid.UUID) time.Time { return s.coord.LastSeen(agentID) }

// introduce introduces this server's node to the agent, and keeps it introduced until release is called and for a while
// afterwards.
func (s *Service) introduce(ctx context.Context, agentID uuid.UUID) (release func(), err error) {
	select {
	case <-s.joined:
	default:
		return nil, fault.New(fault.Unavailable, "This server has not joined the mesh yet.").
			WithDetail("Try again in a moment.")
	}
	if p, ok := s.coord.Lookup(tailnet.Addr(agentID)); ok && p.Kind != protocol.KindAgent {
		return nil, fault.New(fault.Internal, "dial %s: it is a %s and no agent", agentID, p.Kind)
	}
	if !s.use(agentID) {
		return nil, fault.New(fault.Unavailable, "The server is stopping.")
	}
	var once sync.Once
	release = func() { once.Do(func() { s.unuse(agentID) }) }
	wait, cancel := context.WithTimeout(ctx, introduceTimeout)
	defer cancel()
	if err := s.client.Subscribe(wait, agentID); err != nil {
		release()
		switch {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for agent %s: %w", agentID, ctx.Err())
		case errors.Is(err, context.DeadlineExceeded), fault.CodeOf(err) == fault.Unavailable:
			return nil, fault.New(fault.Unavailable, "The workspace's agent is not connected.").
				WithDetail("It is still starting, or it has stopped. The workspace's log shows the reason.")
		default:
			return nil, fmt.Errorf("wait for agent %s: %w", agentID, err)
		}
	}
	return release, nil
}

func (s *Service) use(agentID uuid.UUID) bool {
	s.introductions.Lock()
	defer s.introductions.Unlock()
	if s.introductions.closed {
		return false
	}
	r := s.introductions.byID[agentID]
	if r == nil {
		r = &introduction{}
		s.introductions.byID[agentID] = r
	}
	r.uses++
	if r.idle != nil {
		r.idle.Stop()
	}
	return true
}

func (s *Service) unuse(agentID uuid.UUID) {
	s.introductions.Lock()
	defer s.introductions.Unlock()
	r := s.introductions.byID[agentID]
	if r.uses--; r.uses > 0 || s.introductions.closed {
		return
	}
	r.idle = time.AfterFunc(s.keep, func() { s.giveUp(agentID, r) })
}

// giveUp ends this server's subscription to an agent. Holding the lock is safe, because Unsubscribe only queues a
// message.
func (s *Service) giveUp(agentID uuid.UUID, r *introduction) {
	s.introductions.Lock()
	defer s.introductions.Unlock()
	if r.uses > 0 || s.introductions.byID[agentID] != r || s.introductions.closed {
		return
	}
	delete(s.introductions.byID, agentID)
	s.client.Unsubscribe(agentID)
}

// endIntroductions stops the timers. Connections end with the node.
func (s *Service) endIntroductions() {
	s.introductions.Lock()
	defer s.introductions.Unlock()
	s.introductions.closed = true
	for _, r := range s.introductions.byID {
		if r.idle != nil {
			r.idle.Stop()
		}
	}
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// agentConn releases its use of the introduction when it is closed.
type agentConn struct {
	halfCloser
	release func()
}

func (c *agentConn) Close() error {
	err := c.halfCloser.Close()
	c.release()
	return err
}

// agentFlow is agentConn for a flow of datagrams.
type agentFlow struct {
	net.Conn
	release func()
}

func (c *agentFlow) Close() error {
	err := c.Conn.Close()
	c.release()
	return err
}
