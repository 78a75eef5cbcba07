package agents

import (
	"context"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/sdk"
)

const (
	askTimeout = 20 * time.Second // for one question and its answer, the connection included
	maxAnswer  = 1 << 20          // bytes of an agent's message
)

// ask returns a client of what an agent answers on the mesh. The caller closes it: there is a connection behind it.
func (s *Service) ask(agent uuid.UUID) (client agentpbconnect.AgentAPIClient, closeIt func()) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // WireGuard encrypts
	transport := &http.Transport{
		Protocols: protocols, Proxy: nil, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.deps.Dial(ctx, agent, meshport.AgentRPC)
		},
	}
	return agentpbconnect.NewAgentAPIClient(&http.Client{Transport: transport}, "http://agent", connect.WithReadMaxBytes(maxAnswer)), transport.CloseIdleConnections
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
			out.Ports = append(out.Ports, sdk.ListeningPort{ProcessName: clean(p.GetProcessName()), Network: clean(p.GetNetwork()), Port: port})
		}
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// askFault is what a user is told when an agent does not answer.
func askFault(err error) error {
	if fault.As(err) != nil {
		return err
	}
	if connect.CodeOf(err) == connect.CodeUnimplemented {
		return fault.New(fault.Unavailable, "The workspace's agent is too old for this.").WithDetail("Restart the workspace to update it.")
	}
	return unreachable(err)
}
