package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/metadata"
	"github.com/codermesh/codermesh/v2/agent/ports"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	maxRequest = 64 << 10 // bytes of a message to the agent
	maxWatches = 32       // of metadata, at once
	// measureTime is how long peers may take to answer a ping. Users wait for the list that needs it.
	measureTime = 500 * time.Millisecond
)

// newAPI returns the service that the server calls on the mesh. The caller must close it.
func newAPI(a api) *http.Server {
	a.watches = make(chan struct{}, maxWatches)
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewAgentAPIHandler(&a, connect.WithReadMaxBytes(maxRequest)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // WireGuard encrypts
	return &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 2 * time.Minute}
}

// api serves calls on the mesh. The coordinator has introduced every caller.
type api struct {
	mesh         Mesh
	metadata     *metadata.Collector
	devcontainer func(uuid.UUID) *devContainer // nil for one that the agent has not started
	watches      chan struct{}                 // a slot per watch
}

func (a *api) ListeningPorts(
	context.Context, *connect.Request[agentpb.ListeningPortsRequest],
) (*connect.Response[agentpb.ListeningPortsResponse], error) {
	found, err := ports.Listening()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	out := &agentpb.ListeningPortsResponse{}
	for _, p := range found {
		out.Ports = append(out.Ports, &agentpb.ListeningPort{ProcessName: p.Process, Network: p.Network,
			Port: uint32(p.Port)})
	}
	return connect.NewResponse(out), nil
}

func (a *api) Paths(
	ctx context.Context, _ *connect.Request[agentpb.PathsRequest],
) (*connect.Response[agentpb.PathsResponse], error) {
	ctx, cancel := context.WithTimeout(ctx, measureTime)
	defer cancel()
	out := &agentpb.PathsResponse{}
	for _, p := range a.mesh.Measure(ctx, func(uuid.UUID) bool { return true }) {
		way := agentpb.Path_WAY_UNSPECIFIED
		switch p.Path {
		case tailnet.PathDirect:
			way = agentpb.Path_WAY_DIRECT
		case tailnet.PathRelay:
			way = agentpb.Path_WAY_RELAY
		}
		out.Paths = append(out.Paths, &agentpb.Path{Peer: p.ID[:], Way: way, LatencyUs: p.Latency.Microseconds(),
			Rx: p.Rx, Tx: p.Tx})
	}
	return connect.NewResponse(out), nil
}

func (a *api) WatchMetadata(
	ctx context.Context, _ *connect.Request[agentpb.WatchMetadataRequest],
	stream *connect.ServerStream[agentpb.WatchMetadataResponse],
) error {
	select {
	case a.watches <- struct{}{}:
		defer func() { <-a.watches }()
	default:
		return connect.NewError(connect.CodeResourceExhausted, errors.New("too many watch this agent's metadata"))
	}
	// An empty message confirms the watch before the first value.
	if err := stream.Send(&agentpb.WatchMetadataResponse{}); err != nil {
		return err
	}
	return a.metadata.Watch(ctx, func(batch []metadata.Value) error {
		out := &agentpb.WatchMetadataResponse{}
		for _, v := range batch {
			out.Values = append(out.Values, &agentpb.MetadataValue{Key: v.Key,
				CollectedAt: timestamppb.New(v.CollectedAt), Value: v.Value, Error: v.Error})
		}
		return stream.Send(out)
	})
}

// ChangeDevcontainer begins to recreate or remove a dev container. A second request while one waits changes nothing.
func (a *api) ChangeDevcontainer(
	_ context.Context, req *connect.Request[agentpb.ChangeDevcontainerRequest],
) (*connect.Response[agentpb.ChangeDevcontainerResponse], error) {
	switch req.Msg.GetChange() {
	case agentpb.ChangeDevcontainerRequest_CHANGE_RECREATE, agentpb.ChangeDevcontainerRequest_CHANGE_REMOVE:
	default:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("unknown change"))
	}
	id, err := uuid.FromBytes(req.Msg.GetDevcontainerId())
	if err != nil {
		return nil, connect.NewError(connect.CodeInvalidArgument, err)
	}
	c := a.devcontainer(id)
	if c == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition,
			errors.New("the agent has not started this dev container"))
	}
	select {
	case c.changes <- req.Msg.GetChange():
	default:
	}
	return connect.NewResponse(&agentpb.ChangeDevcontainerResponse{}), nil
}
