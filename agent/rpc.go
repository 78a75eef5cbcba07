package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/agent/agentpb/agentpbconnect"
	"github.com/codermesh/codermesh/v2/agent/logship"
	"github.com/codermesh/codermesh/v2/internal/backoff"
	"github.com/codermesh/codermesh/v2/internal/buildinfo"
	"github.com/codermesh/codermesh/v2/internal/memory"
	"github.com/codermesh/codermesh/v2/internal/notify"
)

const (
	protocolVersion = 1
	apiVersion      = "2.0"
	recertify       = 24 * time.Hour // how often another certificate of the SSH host key is asked for
	maxAnswer       = 16 << 20       // bytes of one message of the server
)

var (
	errSilent = errors.New("the server does not answer heartbeats")
	errEnded  = errors.New("the server ended the stream")
)

// talk keeps a connection with the server until ctx ends. The pauses between attempts grow with the outage; the
// coordinator's next welcome cuts them short.
func (d *daemon) talk(ctx context.Context) {
	var outage backoff.Outage
	for ctx.Err() == nil {
		began := time.Now()
		connected, err := d.connection(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected {
			outage.Lost(began)
		}
		d.log.Info("no connection with the server", "reason", err)
		pause, cancel := context.WithTimeout(ctx, outage.Next())
		if d.mesh.Reconnected(pause) != nil {
			<-pause.Done() // even if the agent has left the mesh
		}
		cancel()
	}
}

// connection dials the server and serves the connection to its end. connected reports whether it reached the server.
func (d *daemon) connection(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	transport := d.transport()
	defer transport.CloseIdleConnections()
	client := agentpbconnect.NewAgentServiceClient(&http.Client{Transport: transport}, "http://server",
		connect.WithReadMaxBytes(maxAnswer))

	call, cancelCall := context.WithTimeout(ctx, callTimeout)
	manifest, err := d.fetchManifest(call, client)
	cancelCall()
	if err != nil {
		return false, err
	}

	d.server.set(client)
	defer d.server.set(nil)
	stream := client.Connect(ctx)
	if err := stream.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: d.hello(manifest)}}); err != nil {
		return true, fmt.Errorf("say hello: %w", err)
	}
	d.log.Info("connected to the server", "agent", manifest.GetAgentName())
	if d.opts.OwnProcess {
		memory.Free() // joining takes more memory than staying
	}

	beat := newPulse(d.mesh, func() { cancel(errSilent) })
	defer beat.limit.Stop()
	var wg sync.WaitGroup
	part := func(f func() error) { wg.Go(func() { cancel(f()) }) }
	changed, hellos := notify.NewWake(), make(chan *agentpb.Hello)
	part(func() error { return d.heartbeat(ctx, stream, beat, hellos) })
	part(func() error { return d.listen(stream, beat, changed) })
	part(func() error { return d.renew(ctx, client, changed, hellos) })
	part(func() error { return d.reports.run(ctx, client, d.log) })
	part(func() error { return d.logs.Run(ctx, sender(client)) })
	part(func() error { return d.connections.Run(ctx, client, d.log) })
	wg.Wait()
	return true, context.Cause(ctx)
}

// transport returns a transport with one connection for all calls: HTTP/2 without TLS, because WireGuard encrypts.
func (d *daemon) transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: protocols, Proxy: nil, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.mesh.DialServer(ctx) },
	}
}

// fetchManifest requests the manifest and accepts it.
func (d *daemon) fetchManifest(
	ctx context.Context, client agentpbconnect.AgentServiceClient,
) (*agentpb.ManifestResponse, error) {
	answer, err := client.Manifest(ctx, connect.NewRequest(&agentpb.ManifestRequest{AcceptsPending: true}))
	if err != nil {
		return nil, fmt.Errorf("get manifest: %w", err)
	}
	if err := d.accept(answer.Msg); err != nil {
		d.log.Error("cannot use manifest", "err", err)
		return nil, err
	}
	return answer.Msg, nil
}

// renew requests the manifest each time the server reports a change, and sends hello again with the new one. It also
// does so once a day, for the certificate of the SSH host key.
func (d *daemon) renew(
	ctx context.Context, client agentpbconnect.AgentServiceClient, changed notify.Wake, hellos chan<- *agentpb.Hello,
) error {
	daily := time.NewTicker(recertify)
	defer daily.Stop()
	for {
		certificate := false
		select {
		case <-changed:
		case <-daily.C:
			certificate = true
		case <-ctx.Done():
			return ctx.Err()
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		m, err := d.fetchManifest(call, client)
		cancel()
		if err != nil {
			return err
		}
		if certificate {
			continue // the server need not hear of it
		}
		select {
		case hellos <- d.hello(m):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemon) hello(m *agentpb.ManifestResponse) *agentpb.Hello {
	h := &agentpb.Hello{
		Version: buildinfo.Version(), ApiVersion: apiVersion, OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
		ProtocolVersion: protocolVersion,
		Incarnation:     m.GetIncarnation(), ManifestPending: m.GetPending(), Subsystems: d.opts.Subsystems,
	}
	if w, last := d.current(); w != nil { // last is m, or the manifest that m replaces
		h.ExpandedDirectory = w.directory(last)
	}
	return h
}

type connectStream = connect.BidiStreamForClient[agentpb.AgentMessage, agentpb.ServerMessage]

// heartbeat sends heartbeats and hellos. It is the stream's only writer.
func (d *daemon) heartbeat(
	ctx context.Context, stream *connectStream, beat *pulse, hellos <-chan *agentpb.Hello,
) error {
	ticker := time.NewTicker(pulseTick)
	defer ticker.Stop()
	for {
		if m := beat.next(time.Now()); m != nil {
			if err := stream.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Heartbeat{Heartbeat: m}}); err != nil {
				return fmt.Errorf("send heartbeat: %w", err)
			}
		}
		select {
		case <-ticker.C:
		case <-beat.asked:
			beat.sent = time.Time{}
		case hello := <-hellos:
			if err := stream.Send(&agentpb.AgentMessage{Message: &agentpb.AgentMessage_Hello{Hello: hello}}); err != nil {
				return fmt.Errorf("say hello: %w", err)
			}
		case <-ctx.Done():
			return errors.Join(ctx.Err(), stream.CloseRequest())
		}
	}
}

func (d *daemon) listen(stream *connectStream, beat *pulse, changed notify.Wake) error {
	defer func() { _ = stream.CloseResponse() }() // the error of Receive is more specific
	for {
		m, err := stream.Receive()
		if err != nil {
			return fmt.Errorf("%w: %w", errEnded, err)
		}
		beat.received(m)
		if down := m.GetShutdown(); down != nil {
			select {
			case d.asked <- down.GetReason():
			default: // the agent is stopping already
			}
		}
		if m.GetManifestChanged() != nil {
			changed.Poke()
		}
	}
}

// sender stores log lines with the server.
func sender(client agentpbconnect.AgentServiceClient) logship.Send {
	return func(ctx context.Context, source uuid.UUID, lines []logship.Line) (uint64, bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		req := &agentpb.LogsRequest{LogSourceId: source[:]}
		for _, l := range lines {
			req.Lines = append(req.Lines, &agentpb.LogLine{
				Seq: l.Seq, At: timestamppb.New(l.At), Level: agentpb.LogLevel(l.Level), Output: l.Output,
			})
		}
		answer, err := client.Logs(ctx, connect.NewRequest(req))
		switch connect.CodeOf(err) {
		case connect.CodeInvalidArgument, connect.CodeNotFound, connect.CodePermissionDenied:
			if err != nil {
				return 0, false, fmt.Errorf("%w: %w", logship.ErrRefused, err)
			}
		}
		if err != nil {
			return 0, false, err
		}
		return answer.Msg.GetStoredSeq(), answer.Msg.GetLimitExceeded(), nil
	}
}
