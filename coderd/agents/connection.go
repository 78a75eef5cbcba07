package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/internal/notify"
	"github.com/codermesh/codermesh/internal/rpcwire"
)

const (
	helloTimeout = 10 * time.Second
	sendTimeout  = 30 * time.Second
	sendQueue    = 8 // queued answers to heartbeats; usually there is one
)

var (
	errStopping = connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping: connect again"))
	errRevoked  = connect.NewError(connect.CodePermissionDenied, errors.New("the workspace no longer runs this agent"))
	errReplaced = connect.NewError(connect.CodeAborted, errors.New("the agent has connected again"))
	errSilent   = connect.NewError(connect.CodeDeadlineExceeded, errors.New("no heartbeat came"))
)

// connection is one agent's Connect stream.
type connection struct {
	agent    uuid.UUID
	wire     *rpcwire.Wire
	silence  time.Duration // how long the agent may stay silent
	shutdown chan string   // capacity 1
	manifest notify.Wake   // the agent must ask for its manifest
	latency  atomic.Int64  // microseconds to the home relay, 0 unknown

	stats atomic.Pointer[agentpb.StatsRequest] // what uses the workspace; nil: not reported yet

	began time.Time // as stored; set before any disconnection is written
}

func (c *connection) end(cause error) { c.wire.End(cause) }

// askShutdown forwards the request; a second one changes nothing.
func (c *connection) askShutdown(reason string) {
	select {
	case c.shutdown <- reason:
	default:
	}
}

// tellManifest makes the agent ask for its manifest. It does not block.
func (c *connection) tellManifest() {
	c.manifest.Poke()
}

// serve answers heartbeats, hands further hellos to hello, and forwards requests until the stream ends. It returns why.
func (c *connection) serve(ctx context.Context, stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage], hello func(*agentpb.Hello) error) error {
	acks := make(chan *agentpb.ServerMessage, sendQueue)
	var sender sync.WaitGroup
	sender.Go(func() { c.send(stream, acks) })
	defer sender.Wait()
	defer close(acks)
	for {
		if err := c.wire.AwaitRead(c.silence); err != nil {
			return err
		}
		msg, err := stream.Receive()
		switch {
		case err == nil:
		case c.wire.Cause() != nil:
			return c.wire.Cause()
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			return nil
		case connect.CodeOf(err) == connect.CodeDeadlineExceeded:
			return errSilent
		default:
			return err
		}
		if again := msg.GetHello(); again != nil {
			if err := hello(again); err != nil {
				return connect.NewError(connect.CodeUnavailable, fmt.Errorf("store hello: %w", err))
			}
		}
		if hb := msg.GetHeartbeat(); hb != nil {
			c.latency.Store(max(hb.GetRelayLatencyUs(), 0))
			select {
			case acks <- &agentpb.ServerMessage{Message: &agentpb.ServerMessage_HeartbeatAck{HeartbeatAck: &agentpb.HeartbeatAck{Nonce: hb.GetNonce()}}}:
			default:
				return connect.NewError(connect.CodeResourceExhausted, errors.New("heartbeats arrive faster than their responses are read"))
			}
		}
	}
}

// send writes to the stream until acks is closed. A failed write ends the stream.
func (c *connection) send(stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage], acks <-chan *agentpb.ServerMessage) {
	for {
		var msg *agentpb.ServerMessage
		var ok bool
		select {
		case msg, ok = <-acks:
			if !ok {
				return
			}
		case reason := <-c.shutdown:
			msg = &agentpb.ServerMessage{Message: &agentpb.ServerMessage_Shutdown{Shutdown: &agentpb.Shutdown{Reason: reason}}}
		case <-c.manifest:
			msg = &agentpb.ServerMessage{Message: &agentpb.ServerMessage_ManifestChanged{ManifestChanged: &agentpb.ManifestChanged{}}}
		}
		err := c.wire.AwaitWrite(sendTimeout)
		if err == nil {
			err = stream.Send(msg)
		}
		if err != nil {
			c.end(connect.NewError(connect.CodeUnavailable, err))
			for range acks { // until the reader has seen the end
			}
			return
		}
	}
}
