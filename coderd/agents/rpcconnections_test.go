package agents_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/coderd/agents"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// connection returns an open connection that a peer began a minute ago.
func connection(peer netip.Addr, kind agentpb.Connection_Kind) *agentpb.Connection {
	id, addr := uuid.New(), peer.As16()
	return &agentpb.Connection{Id: id[:], Kind: kind, PeerAddress: addr[:], ConnectedAt: timestamppb.New(time.Now().Add(-time.Minute)), Way: agentpb.Path_WAY_RELAY}
}

// reportConnections reports as an agent: first, that its process is new.
func reportConnections(t *testing.T, c agentpbconnect.AgentServiceClient, first bool, all ...*agentpb.Connection) error {
	t.Helper()
	_, err := c.Connections(t.Context(), connect.NewRequest(&agentpb.ConnectionsRequest{First: first, Connections: all}))
	return err
}

// connections returns the rows of the log that a query finds.
func (w *world) connections(t *testing.T, q string) map[uuid.UUID]sdk.ConnectionLog {
	t.Helper()
	got, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: q})
	if err != nil || got.Count != len(got.ConnectionLogs) {
		t.Fatalf("%s: %+v, %v", q, got, err)
	}
	byID := map[uuid.UUID]sdk.ConnectionLog{}
	for _, row := range got.ConnectionLogs {
		byID[row.ID] = row
	}
	return byID
}

func TestConnectionLog(t *testing.T) {
	t.Parallel()
	w, b, id := running(t)
	ws := b.Workspace
	client, server, stranger := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fd00::3")
	w.opts.Peers = func(addr netip.Addr) (agents.Peer, bool) {
		switch addr {
		case client:
			return agents.Peer{User: w.owner, Addr: netip.MustParseAddr("192.0.2.7")}, true
		case server:
			return agents.Peer{Server: true}, true
		}
		return agents.Peer{}, false
	}
	sv := serve(t, agents.New(w.opts))
	c := sv.client(id)

	session, port, foreign := connection(client, agentpb.Connection_KIND_SSH), connection(stranger, agentpb.Connection_KIND_PORT_FORWARDING), connection(server, agentpb.Connection_KIND_PORT_FORWARDING)
	port.Port, port.Way, port.Endpoint = 8080, agentpb.Path_WAY_DIRECT, "198.51.100.4:4242"
	for range 2 { // the answer to the first report was lost
		if err := reportConnections(t, c, true, session, port, foreign); err != nil {
			t.Fatal(err)
		}
	}
	rows := w.connections(t, "")
	if len(rows) != 2 {
		t.Fatalf("rows: %+v", rows)
	}
	got := rows[uuid.UUID(session.GetId())]
	if got.Type != "ssh" || got.Username != "ann" || got.IP != "192.0.2.7" || got.Path != "relayed" || got.DisconnectTime != nil || got.WorkspaceID != ws ||
		got.WorkspaceOwnerUsername != "ann" || got.SSHInfo == nil || got.WebInfo != nil || got.Organization == nil {
		t.Errorf("session: %+v", got)
	}
	if got := rows[uuid.UUID(port.GetId())]; got.SlugOrPort != "8080" || got.Username != "" || got.IP != "198.51.100.4" || got.Path != "direct" {
		t.Errorf("port: %+v", got)
	}

	// It turns out to be an editor's, and ends. Later reports of it change nothing.
	session.Kind, session.Reason, session.BytesIn, session.BytesOut = agentpb.Connection_KIND_VSCODE, "closed by the client", 12, 345
	session.DisconnectedAt = timestamppb.Now()
	if err := reportConnections(t, c, false, session); err != nil {
		t.Fatal(err)
	}
	session.Reason, session.DisconnectedAt = "", nil
	if err := reportConnections(t, c, false, session); err != nil {
		t.Fatal(err)
	}
	if got := w.connections(t, "status:completed")[uuid.UUID(session.GetId())]; got.Type != "vscode" || got.DisconnectReason != "closed by the client" || got.BytesOut != 345 {
		t.Errorf("ended: %+v", got)
	}

	// Another agent cannot change this one's rows, nor can a caller that is no agent report anything.
	other := uuid.New()
	w.store(w.BuildRow(w.WorkspaceRow("bob", "dev"), sdk.TransitionStart, sdk.JobSucceeded), true, resource(other))
	stolen := connection(client, agentpb.Connection_KIND_SSH)
	stolen.Id, stolen.DisconnectedAt, stolen.Reason = port.GetId(), timestamppb.Now(), "stolen"
	if err := reportConnections(t, sv.client(other), true, stolen); err != nil {
		t.Fatal(err)
	}
	if got := w.connections(t, "status:ongoing"); len(got) != 1 || got[uuid.UUID(port.GetId())].WorkspaceID != ws {
		t.Errorf("after another agent's report: %+v", got)
	}
	if err := reportConnections(t, sv.client(uuid.Nil), true); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("no agent: %v", err)
	}
	refusesConnections(t, c, session)

	// A new process of the agent knows nothing of the old one's connections.
	next := connection(client, agentpb.Connection_KIND_SSH)
	if err := reportConnections(t, c, true, next); err != nil {
		t.Fatal(err)
	}
	if got := w.connections(t, "")[uuid.UUID(port.GetId())]; got.DisconnectTime == nil || got.DisconnectReason != "the agent restarted" {
		t.Errorf("after a restart: %+v", got)
	}
	w.revoke(ws)
	if got := w.connections(t, "username:ann type:ssh")[uuid.UUID(next.GetId())]; got.DisconnectReason != "the workspace stopped" {
		t.Errorf("after a stop: %+v", got)
	}
}

// refusesConnections checks that connections which lack a field of a whole one are refused.
func refusesConnections(t *testing.T, c agentpbconnect.AgentServiceClient, whole *agentpb.Connection) {
	t.Helper()
	for name, bad := range map[string]*agentpb.Connection{
		"no id":   {Kind: agentpb.Connection_KIND_SSH, PeerAddress: whole.GetPeerAddress(), ConnectedAt: timestamppb.Now()},
		"no kind": {Id: whole.GetId(), PeerAddress: whole.GetPeerAddress(), ConnectedAt: timestamppb.Now()},
		"no peer": {Id: whole.GetId(), Kind: agentpb.Connection_KIND_SSH, ConnectedAt: timestamppb.Now()},
		"no time": {Id: whole.GetId(), Kind: agentpb.Connection_KIND_SSH, PeerAddress: whole.GetPeerAddress()},
	} {
		if err := reportConnections(t, c, false, bad); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTerminalIsRecorded checks that the server records who used a terminal.
func TestTerminalIsRecorded(t *testing.T) {
	t.Parallel()
	w, _, id := running(t)
	f := newFakeAgent(t)
	w.opts.Mesh, w.opts.Connections = &fakeMesh{dial: f.dial(id)}, audit.NewConnections(w.DB, w.log)
	ctx, cancel := context.WithCancel(t.Context())
	stored := make(chan struct{})
	go func() { defer close(stored); w.opts.Connections.Run(ctx) }()
	s := agents.New(w.opts)
	s.Start()
	t.Cleanup(s.Stop)
	ws := dialWS(t, w.Serve(s), w.Token("ann"), id.String()+"/pty?reconnect="+uuid.NewString())
	conn, _ := f.accept(t)
	rows := func(q string) []sdk.ConnectionLog {
		got, err := w.As("olga").ConnectionLogs(t.Context(), sdk.LogQuery{Q: q})
		if err != nil {
			t.Fatal(err)
		}
		return got.ConnectionLogs
	}
	found := func(q string) func() error {
		return func() error { return testwait.Unless(len(rows(q)) > 0, "no row is %s among %+v", q, rows("")) }
	}
	testwait.Until(t, "row of the open terminal", found("type:reconnecting_pty status:ongoing"))
	if err := ptywire.Write(conn, ptywire.Output, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := ptywire.WriteJSON(conn, ptywire.Exit, ptywire.End{Code: 3}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := ws.ReadAny(t.Context()); err != nil {
			break
		}
	}
	testwait.Until(t, "row of the closed terminal", found("status:completed username:ann"))
	got := rows("")[0]
	if got.Username != "ann" || got.DisconnectReason != "exit status 3" || got.BytesOut == 0 || got.Path != "proxied" || got.IP != "127.0.0.1" || got.SSHInfo == nil {
		t.Errorf("row: %+v", got)
	}
	cancel()
	<-stored
}
