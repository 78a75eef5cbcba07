package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/client"
	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// Buffer sizes of one TCP connection, in bytes. They are small because a byte in flight takes several bytes of memory.
const (
	sendBuffer = 1 << 20
	recvBuffer = 1 << 20
)

// inbound returns what participants of a kind may open here.
func inbound(kind protocol.Kind) tailnet.Inbound {
	switch kind {
	case protocol.KindClient, protocol.KindServer:
		return tailnet.InboundAll
	case protocol.KindProxy:
		return tailnet.InboundPorts(meshport.Visit)
	}
	return tailnet.InboundNone
}

// join blocks until the coordinator has made the agent a participant.
func join(ctx context.Context, opts Options) (Mesh, error) {
	if opts.Join != nil {
		return opts.Join(ctx)
	}
	m := &meshNode{}
	key := tailnet.NewPrivateKey()
	m.client = client.New(client.Options{
		Logger: opts.Logger, URL: opts.URL, HTTPClient: opts.HTTPClient, TLS: opts.TLS,
		Kind: protocol.KindAgent, Key: key.Public(), Inbound: inbound,
		Header: func(context.Context) (http.Header, error) {
			header := opts.Header.Clone()
			if header == nil {
				header = make(http.Header)
			}
			header.Set(sdk.AgentTokenHeader, opts.Token.Reveal())
			return header, nil
		},
		NewNode: func(w protocol.Welcome) (client.Node, error) {
			nodeOpt := tailnet.Options{
				ID: w.ID, Key: key, Logger: opts.Logger, RelayOnly: opts.RelayOnly, SendBuffer: sendBuffer,
				RecvBuffer: recvBuffer,
				Revived:    m.reconnect, TLS: opts.TLS,
			}
			var err error
			m.Node, err = tailnet.New(nodeOpt)
			return m.Node, err
		},
	})
	m.client.Start()
	if _, err := m.client.Welcome(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("join the mesh: %w", err), m.Close())
	}
	return m, nil
}

// meshNode is the real Mesh.
type meshNode struct {
	*tailnet.Node
	client *client.Client
	server atomic.Pointer[uuid.UUID] // that DialServer connected to last
}

// reconnect is called by the node when its network may have changed. The client makes the node, so m.client is set by
// then.
func (m *meshNode) reconnect() { m.client.Reconnect() }

func (m *meshNode) DialServer(ctx context.Context) (net.Conn, error) {
	return m.client.DialServer(ctx, func(ctx context.Context, server tailnet.NodeInfo) (net.Conn, error) {
		m.server.Store(&server.ID)
		return m.Dial(ctx, "tcp", netip.AddrPortFrom(server.Addr(), meshport.ServerRPC))
	})
}

func (m *meshNode) ServerLastSeen() (since, last time.Time) {
	server := m.server.Load()
	if server == nil {
		return since, last
	}
	return m.client.ServerLastSeen(*server)
}

func (m *meshNode) Reconnected(ctx context.Context) error { return m.client.Reconnected(ctx) }

func (m *meshNode) RelayLatency() time.Duration {
	home := m.Info().Region
	for _, relay := range m.Status().Relays {
		if relay.ID == home {
			return relay.Latency
		}
	}
	return 0
}

func (m *meshNode) Done() <-chan struct{} { return m.client.Done() }
func (m *meshNode) Err() error            { return m.client.Err() }

func (m *meshNode) Close() error {
	err := m.client.Close()
	if m.Node != nil {
		err = errors.Join(err, m.Node.Close())
	}
	return err
}
