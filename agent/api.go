package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/metadata"
	"github.com/codermesh/codermesh/v2/agent/ports"
	"github.com/codermesh/codermesh/v2/agent/script"
	"github.com/codermesh/codermesh/v2/tailnet"
)

const (
	maxRequest = 64 << 10 // bytes of a message to the agent
	maxWatches = 32       // of metadata, at once
	// measureTime is how long peers may take to answer a ping. Users wait for the list that needs it.
	measureTime = 500 * time.Millisecond
)

// newAPI returns the service that the server calls on the mesh. The caller must close it.
func (d *daemon) newAPI() *http.Server {
	mux := http.NewServeMux()
	mux.Handle(agentpbconnect.NewAgentAPIHandler(&api{daemon: d, watches: make(chan struct{}, maxWatches)}, connect.WithReadMaxBytes(maxRequest)))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // WireGuard encrypts
	return &http.Server{Handler: mux, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

func (d *daemon) serveAPI() {
	if err := d.api.Serve(d.apiListener); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
		d.log.Error("cannot serve the server's calls", "err", err)
	}
}

// api serves calls on the mesh. The coordinator has introduced every caller.
type api struct {
	*daemon
	watches chan struct{} // a slot per watch
}

func (a *api) ListeningPorts(context.Context, *connect.Request[agentpb.ListeningPortsRequest]) (*connect.Response[agentpb.ListeningPortsResponse], error) {
	found, err := ports.Listening()
	if err != nil {
		return nil, connect.NewError(connect.CodeInternal, err)
	}
	out := &agentpb.ListeningPortsResponse{}
	for _, p := range found {
		out.Ports = append(out.Ports, &agentpb.ListeningPort{ProcessName: p.Process, Network: p.Network, Port: uint32(p.Port)})
	}
	return connect.NewResponse(out), nil
}

func (a *api) Paths(ctx context.Context, _ *connect.Request[agentpb.PathsRequest]) (*connect.Response[agentpb.PathsResponse], error) {
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
		out.Paths = append(out.Paths, &agentpb.Path{Peer: p.ID[:], Way: way, LatencyUs: p.Latency.Microseconds(), Rx: p.Rx, Tx: p.Tx})
	}
	return connect.NewResponse(out), nil
}

func (a *api) WatchMetadata(ctx context.Context, _ *connect.Request[agentpb.WatchMetadataRequest], stream *connect.ServerStream[agentpb.WatchMetadataResponse]) error {
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
			out.Values = append(out.Values, &agentpb.MetadataValue{Key: v.Key, CollectedAt: timestamppb.New(v.CollectedAt), Value: v.Value, Error: v.Error})
		}
		return stream.Send(out)
	})
}

// setMetadata passes the manifest's items to the collector.
func (d *daemon) setMetadata(m *agentpb.ManifestResponse) {
	var items []metadata.Item
	for _, item := range m.GetMetadata() {
		items = append(items, metadata.Item{
			Key: item.GetKey(), Script: item.GetScript(),
			Interval: time.Duration(item.GetIntervalSeconds()) * time.Second, Timeout: time.Duration(item.GetTimeoutSeconds()) * time.Second,
		})
	}
	d.metadata.Set(items)
}

// metadataSpace is the namespace for ids of metadata scripts, which have none in the manifest.
var metadataSpace = uuid.MustParse("6f1c2b0e-0f55-4d3a-9b0e-52a6f3c4d1aa")

// runMetadata runs one metadata script.
func (d *daemon) runMetadata(ctx context.Context, item metadata.Item) (string, error) {
	w, m := d.current()
	return w.scripts.Output(ctx, script.Script{ID: uuid.NewSHA1(metadataSpace, []byte(item.Key)), Name: item.Key, Text: item.Script},
		w.scriptEnvironment(m), metadata.MaxValue*2)
}
