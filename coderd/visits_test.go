package coderd_test

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/tailnet"
)

// TestSessionsOfGuests checks that the connection log names the guest who opened a session in a shared workspace, over the real mesh and
// although the guest has left it before the report, and the owner for the owner's own session.
func TestSessionsOfGuests(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	workspace, agent, m := s.RunningAgent("ann", "dev", s.Template("process", nil).ID, nil)
	if err := s.As("ann").UpdateWorkspaceACL(t.Context(), workspace, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{s.User("bob").String(): sdk.RoleUse}}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan netip.Addr)
	m.Serve(echoPort, func(conn net.Conn) {
		seen <- netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr()
		coderdtest.Echo(conn)
	})
	welcome, err := m.Client.Welcome(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := agentpbconnect.NewAgentServiceClient(coderdtest.RPCClient(t, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return m.Node.Dial(ctx, "tcp", netip.AddrPortFrom(tailnet.Addr(welcome.Servers[0]), meshport.ServerRPC))
	}), "http://server")
	for _, user := range []string{"bob", "ann"} {
		client := s.Join(coderdtest.AsUser(s.Token(user)))
		if err := client.Client.Subscribe(t.Context(), agent); err != nil {
			t.Fatal(err)
		}
		conn, err := client.Dial(agent, echoPort, coderdtest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		peer := (<-seen).As16()
		conn.Close()
		client.Client.Close()
		id := uuid.New()
		if _, err := server.Connections(t.Context(), connect.NewRequest(&agentpb.ConnectionsRequest{Connections: []*agentpb.Connection{{
			Id: id[:], Kind: agentpb.Connection_KIND_SSH, PeerAddress: peer[:], ConnectedAt: timestamppb.Now(), DisconnectedAt: timestamppb.New(time.Now().Add(time.Second)),
			Way: agentpb.Path_WAY_RELAY,
		}}})); err != nil {
			t.Fatal(err)
		}
		got, err := s.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: "connection_id:" + id.String()})
		if err != nil || len(got.ConnectionLogs) != 1 {
			t.Fatalf("%s: %+v, %v", user, got, err)
		}
		if row := got.ConnectionLogs[0]; row.Username != user || row.WorkspaceOwnerUsername != "ann" || row.Path != "relayed" {
			t.Errorf("%s: logged as %+v", user, row)
		}
	}
}
