package coderdtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd"
	"github.com/codermesh/codermesh/v2/provisionerd/echo"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Member is an external participant of the mesh: all its traffic goes through the server's routes and real sockets.
type Member struct {
	T      testing.TB
	Client *client.Client
	Node   *tailnet.Node // after Joined
}

// Joining describes how a member joins.
type Joining struct {
	Kind protocol.Kind
	// Header contains the credential.
	Header  http.Header
	Inbound tailnet.Inbound
	// Name is the peer that the hello asks to be introduced to.
	Name string
	// RelayOnly keeps the node from direct paths.
	RelayOnly bool
}

// AsAgent returns how an agent joins with its token.
func AsAgent(token string) Joining {
	return Joining{Kind: protocol.KindAgent, Header: http.Header{sdk.AgentTokenHeader: {token}}, Inbound: tailnet.InboundAll}
}

// AsUser returns how a user joins with a session's token.
func AsUser(session string) Joining {
	return Joining{Kind: protocol.KindClient, Header: http.Header{sdk.SessionHeader: {session}}, Inbound: tailnet.InboundNone}
}

// Join connects a member to the server at base, which must have been started. It does not wait.
func Join(t testing.TB, base *url.URL, as Joining) *Member {
	t.Helper()
	m, key := &Member{T: t}, tailnet.NewPrivateKey()
	m.Client = client.New(client.Options{
		URL: base, Kind: as.Kind, Key: key.Public(), Name: as.Name,
		Header:  func(context.Context) (http.Header, error) { return as.Header, nil },
		Inbound: func(protocol.Kind) tailnet.Inbound { return as.Inbound },
		NewNode: func(welcome protocol.Welcome) (client.Node, error) {
			var err error
			m.Node, err = tailnet.New(tailnet.Options{ID: welcome.ID, Key: key, RelayOnly: as.RelayOnly})
			return m.Node, err
		},
	})
	m.Client.Start()
	t.Cleanup(func() {
		m.Client.Close()
		if m.Node != nil {
			m.Node.Close()
		}
	})
	return m
}

// Join connects a member to this server, and waits for its welcome.
func (s *Server) Join(as Joining) *Member {
	s.T.Helper()
	return Join(s.T, s.URL, as).Joined()
}

// Joined waits for the welcome.
func (m *Member) Joined() *Member {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(m.T.Context(), Patience)
	defer cancel()
	if _, err := m.Client.Welcome(ctx); err != nil {
		m.T.Fatal(err)
	}
	return m
}

// Refusal waits for the end of a participant that is refused, and returns the code.
func (m *Member) Refusal() fault.Code {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(m.T.Context(), Patience)
	defer cancel()
	_, err := m.Client.Welcome(ctx)
	return fault.CodeOf(err)
}

// Dial opens a connection to a port of a peer, for at most the given time.
func (m *Member) Dial(peer uuid.UUID, port uint16, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(m.T.Context(), limit)
	defer cancel()
	return m.Node.Dial(ctx, "tcp", netip.AddrPortFrom(tailnet.Addr(peer), port))
}

// Serve calls handle for each connection to a port of the member's node.
func (m *Member) Serve(port uint16, handle func(net.Conn)) {
	m.T.Helper()
	l, err := m.Node.Listen(port)
	if err != nil {
		m.T.Fatal(err)
	}
	m.T.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				handle(conn)
			}()
		}
	}()
}

// Echo sends back what it receives.
func Echo(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// ProvisionerHeader returns the header that a provisioner joins with: its name, and its credentials and tags as
// alternating keys and values.
func ProvisionerHeader(name string, pairs ...string) http.Header {
	h := http.Header{sdk.ProvisionerNameHeader: {name}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// JoinProvisioner starts a real provisioner, whose jobs run what their archive specifies (provisionerd/echo), and waits
// until the server has welcomed or refused it.
func (s *Server) JoinProvisioner(header http.Header) (*provisionerd.Participant, error) {
	s.T.Helper()
	exec := &echo.Executor{}
	d, err := provisionerd.Join(provisionerd.RunOptions{
		Options: provisionerd.Options{
			Logger: slog.New(slog.DiscardHandler), Name: header.Get(sdk.ProvisionerNameHeader), StateDir: s.T.TempDir(),
			Executor: exec,
		},
		URL: s.URL, Header: func(context.Context) (http.Header, error) { return header.Clone(), nil },
	})
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // does not wait for its jobs
		if err := errors.Join(d.Stop(ctx), exec.Close()); err != nil {
			s.T.Errorf("stop provisioner: %v", err)
		}
	})
	select {
	case <-d.Daemon.Started():
		return d, nil
	case <-d.Done():
		return d, d.Err()
	case <-time.After(Patience):
		s.T.Fatal("the provisioner was neither welcomed nor refused")
		return nil, nil
	}
}

// RunningAgent creates a workspace whose first build keeps running, and joins its agent. edit may change the agent that
// the build describes.
func (s *Server) RunningAgent(
	owner, name string, template uuid.UUID, edit func(*provisionerpb.Agent),
) (workspace, agent uuid.UUID, m *Member) {
	s.T.Helper()
	workspace, agent = s.Workspace(owner, name, template).ID, uuid.New()
	resource := Resource(agent)
	if edit != nil {
		edit(resource.GetAgents()[0])
	}
	s.Daemon().Next().Resources(resource)
	return workspace, agent, s.Join(AsAgent(Token(agent).Reveal()))
}
