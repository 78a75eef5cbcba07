package agents

import (
	"context"
	"errors"
	"net/netip"
	"strconv"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
)

// maxConnections bounds the connections in one report.
const maxConnections = 256

// maxLatency bounds what an agent says of a round trip, in microseconds: a minute.
const maxLatency = 60_000_000

var connectionTypes = map[agentpb.Connection_Kind]audit.ConnectionType{
	agentpb.Connection_KIND_SSH:             audit.SSH,
	agentpb.Connection_KIND_VSCODE:          audit.VSCode,
	agentpb.Connection_KIND_JETBRAINS:       audit.JetBrains,
	agentpb.Connection_KIND_PORT_FORWARDING: audit.PortForwarding,
}

var connectionPaths = map[agentpb.Path_Way]string{
	agentpb.Path_WAY_DIRECT: audit.PathDirect, agentpb.Path_WAY_RELAY: audit.PathRelayed,
}

// Connections stores who is connected to the agent's workspace. It ignores servers: they record what they proxy, with
// the visitor.
func (r *rpc) Connections(
	ctx context.Context, req *connect.Request[agentpb.ConnectionsRequest],
) (*connect.Response[agentpb.ConnectionsResponse], error) {
	id, err := r.who(req.Peer())
	if err != nil {
		return nil, err
	}
	if len(req.Msg.GetConnections()) > maxConnections {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("at most 256 connections fit in a report"))
	}
	kept := []uuid.UUID{}
	var rows []dbsqlc.ReportConnectionParams
	for _, c := range req.Msg.GetConnections() {
		p, ok := reported(id, c)
		if !ok {
			return nil, connect.NewError(connect.CodeInvalidArgument,
				errors.New("a connection needs an id, a kind, a peer and its times"))
		}
		addr, _ := netip.AddrFromSlice(c.GetPeerAddress())
		peer, _ := r.opts.Peers(addr)
		if peer.Server {
			continue
		}
		if peer.User != uuid.Nil {
			p.UserID = &peer.User
		}
		if peer.Addr.IsValid() {
			p.Ip = peer.Addr.String()
		}
		kept, rows = append(kept, p.ID), append(rows, p)
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = r.opts.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		if req.Msg.GetFirst() {
			if _, err := q.EndConnections(ctx, dbsqlc.EndConnectionsParams{
				AgentID: id, Reason: "the agent restarted", Kept: kept,
			}); err != nil {
				return err
			}
		}
		for _, p := range rows {
			if _, err := q.ReportConnection(ctx, p); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, r.fail(ctx, id, "store connections", err)
	}
	return connect.NewResponse(&agentpb.ConnectionsResponse{}), nil
}

// reported returns the row of a connection without what only the server knows of the client.
func reported(agent uuid.UUID, c *agentpb.Connection) (dbsqlc.ReportConnectionParams, bool) {
	id, err := uuid.FromBytes(c.GetId())
	kind, known := connectionTypes[c.GetKind()]
	if _, ok := netip.AddrFromSlice(c.GetPeerAddress()); err != nil || id == uuid.Nil || !known || !ok ||
		!c.GetConnectedAt().IsValid() || c.GetPort() > 65535 ||
		c.GetBytesIn() < 0 || c.GetBytesOut() < 0 {
		return dbsqlc.ReportConnectionParams{}, false
	}
	p := dbsqlc.ReportConnectionParams{
		ID: id, AgentID: agent, ConnectTime: clampTime(c.GetConnectedAt().AsTime()),
		DisconnectReason: short(c.GetReason(), maxText), Type: string(kind),
		Path: connectionPaths[c.GetWay()], BytesIn: c.GetBytesIn(), BytesOut: c.GetBytesOut(),
	}
	if latency := c.GetLatencyUs(); latency > 0 {
		latency = min(latency, maxLatency)
		p.LatencyUs = &latency
	}
	if c.GetPort() != 0 {
		p.SlugOrPort = strconv.Itoa(int(c.GetPort()))
	}
	if end := c.GetDisconnectedAt(); end != nil {
		if !end.IsValid() {
			return p, false
		}
		at := clampTime(end.AsTime())
		if at.Before(p.ConnectTime) {
			at = p.ConnectTime
		}
		p.DisconnectTime = &at
	}
	if endpoint, err := netip.ParseAddrPort(c.GetEndpoint()); err == nil {
		p.Ip = endpoint.Addr().Unmap().String()
	}
	return p, true
}
