package agents

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	askTimeout = 20 * time.Second // for one question and its answer, including the connection
	maxAnswer  = 1 << 20          // bytes of an agent's message
)

// ask returns a client for the API that an agent serves on the mesh. The caller must close it, because it holds a
// connection.
func (s *Service) ask(agent uuid.UUID) (client agentpbconnect.AgentAPIClient, closeIt func()) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // WireGuard encrypts
	transport := &http.Transport{
		Protocols: protocols, Proxy: nil, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.opts.Mesh.DialAgent(ctx, agent, meshport.AgentRPC)
		},
	}
	return agentpbconnect.NewAgentAPIClient(&http.Client{
		Transport: transport,
	}, "http://agent", connect.WithReadMaxBytes(maxAnswer)), transport.CloseIdleConnections
}

func (s *Service) listeningPorts(w http.ResponseWriter, r *http.Request) error {
	a, err := s.reachable(r)
	if err != nil {
		return err
	}
	client, closeIt := s.ask(a.ID)
	defer closeIt()
	ctx, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	answer, err := client.ListeningPorts(ctx, connect.NewRequest(&agentpb.ListeningPortsRequest{}))
	if err != nil {
		return askFault(err)
	}
	out := sdk.ListeningPorts{Ports: []sdk.ListeningPort{}}
	for _, p := range answer.Msg.GetPorts() {
		if port := uint16(p.GetPort()); uint32(port) == p.GetPort() && port != 0 {
			out.Ports = append(out.Ports, sdk.ListeningPort{
				ProcessName: database.Text(p.GetProcessName()), Network: database.Text(p.GetNetwork()), Port: port,
			})
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// Paths asks an agent how packets travel between it and its peers. It blocks for a round trip and the pings, or until
// ctx ends.
func (s *Service) Paths(ctx context.Context, agent uuid.UUID) ([]tailnet.PeerStatus, error) {
	client, closeIt := s.ask(agent)
	defer closeIt()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := client.Paths(ctx, connect.NewRequest(&agentpb.PathsRequest{}))
	if err != nil {
		return nil, askFault(err)
	}
	var all []tailnet.PeerStatus
	for _, p := range answer.Msg.GetPaths() {
		id, err := uuid.FromBytes(p.GetPeer())
		if err != nil {
			return nil, fmt.Errorf("parse peer of agent %s: %w", agent, err)
		}
		path := tailnet.PathNone
		switch p.GetWay() {
		case agentpb.Path_WAY_DIRECT:
			path = tailnet.PathDirect
		case agentpb.Path_WAY_RELAY:
			path = tailnet.PathRelay
		}
		latency := time.Duration(min(max(p.GetLatencyUs(), 0), time.Hour.Microseconds())) * time.Microsecond
		all = append(all, tailnet.PeerStatus{
			ID: id, Path: path, Latency: latency, Rx: max(p.GetRx(), 0), Tx: max(p.GetTx(), 0),
		})
	}
	return all, nil
}

// askFault returns the error that users see when an agent does not answer.
func askFault(err error) error {
	if fault.As(err) != nil {
		return err
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return fault.New(fault.Unavailable, "The workspace's agent is too old for this.").
			WithDetail("Restart the workspace to update it.")
	}
	return unreachable(err)
}
