package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/agent/agentpb"
	"github.com/codermesh/codermesh/v2/internal/notify"
	"github.com/codermesh/codermesh/v2/internal/rpcwire"
)

const (
	helloTimeout = 10 * time.Second
	sendTimeout  = 30 * time.Second
	sendQueue    = 8 // queued answers to heartbeats; usually there is one

	// minRest and maxRest bound the time for which the server needs no heartbeat of an agent that the coordinator hears
	// from. A heartbeat after a rest wakes the mesh between the two: a handshake, and 45 s of pings. Random rests keep
	// agents that connected at one moment apart.
	minRest = 10 * time.Minute
	maxRest = 20 * time.Minute
)

var (
	errStopping = connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping: connect again"))
	errRevoked  = connect.NewError(connect.CodePermissionDenied, errors.New("the workspace no longer runs this agent"))
	errReplaced = connect.NewError(connect.CodeAborted, errors.New("the agent has connected again"))
	errSilent   = connect.NewError(connect.CodeDeadlineExceeded, errors.New("no sign of life came"))
)

// connection is one agent's Connect stream.
type connection struct {
	agent       uuid.UUID
	wire        *rpcwire.Wire
	silence     time.Duration    // how long the agent may stay silent
	lastSeen    func() time.Time // when the coordinator last heard from the agent
	opened      time.Time
	lastMessage atomic.Int64 // nanoseconds from opened to the last message
	shutdown    chan string  // capacity 1
	manifest    notify.Wake  // the agent must ask for its manifest
	latency     atomic.Int64 // microseconds to the home relay, 0 unknown

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

// announceManifest makes the agent ask for its manifest. It does not block.
func (c *connection) announceManifest() {
	c.manifest.Poke()
}

// quiet returns how much longer the agent may stay silent. After the server's message at asked, other than an answer,
// only a message in this stream counts: the agent answers with a heartbeat. The zero value means that there was none.
func (c *connection) quiet(asked time.Time) time.Duration {
	last := c.opened.Add(time.Duration(c.lastMessage.Load()))
	switch {
	case last.Before(asked):
		last = asked
	default:
		if elsewhere := c.lastSeen(); elsewhere.After(last) {
			last = elsewhere
		}
	}
	return c.silence - time.Since(last)
}

// rest returns for how long the server needs no heartbeat while the agent is connected to a coordinator.
func (c *connection) rest() time.Duration {
	if time.Since(c.lastSeen()) > c.silence {
		return 0
	}
	return minRest + rand.N(maxRest-minRest)
}

// serve answers heartbeats, hands further hellos to hello, and forwards requests until the stream ends. It returns why.
func (c *connection) serve(ctx context.Context, stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage], hello func(*agentpb.Hello) error) error {
	acks := make(chan *agentpb.ServerMessage, sendQueue)
	var sender sync.WaitGroup
	sender.Go(func() { c.send(stream, acks) })
	defer sender.Wait()
	defer close(acks)
	if err := c.wire.AwaitRead(0); err != nil { // the sender watches for silence
		return err
	}
	for {
		msg, err := stream.Receive()
		switch {
		case err == nil:
		case c.wire.Cause() != nil:
			return c.wire.Cause()
		case errors.Is(err, io.EOF) || ctx.Err() != nil:
			return nil
		default:
			return err
		}
		c.lastMessage.Store(int64(time.Since(c.opened)))
		if again := msg.GetHello(); again != nil {
			if err := hello(again); err != nil {
				return connect.NewError(connect.CodeUnavailable, fmt.Errorf("store hello: %w", err))
			}
		}
		if hb := msg.GetHeartbeat(); hb != nil {
			c.latency.Store(max(hb.GetRelayLatencyUs(), 0))
			select {
			case acks <- &agentpb.ServerMessage{Message: &agentpb.ServerMessage_HeartbeatAck{HeartbeatAck: &agentpb.HeartbeatAck{
				Nonce: hb.GetNonce(), RestSeconds: uint32(c.rest().Seconds()),
			}}}:
			default:
				return connect.NewError(connect.CodeResourceExhausted,
					errors.New("heartbeats arrive faster than their responses are read"))
			}
		}
	}
}

// send writes to the stream until acks is closed. A failed write ends the stream, and so does the agent's silence.
func (c *connection) send(
	stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage], acks <-chan *agentpb.ServerMessage,
) {
	watch := time.NewTimer(c.silence)
	defer watch.Stop()
	var asked time.Time // when the last message other than an answer was sent
	for {
		var msg *agentpb.ServerMessage
		var ok bool
		select {
		case <-watch.C:
			left := c.quiet(asked)
			if left <= 0 {
				c.end(errSilent)
				left = c.silence // the reader ends this soon
			}
			watch.Reset(left)
			continue
		case msg, ok = <-acks:
			if !ok {
				return
			}
		case reason := <-c.shutdown:
			msg = &agentpb.ServerMessage{Message: &agentpb.ServerMessage_Shutdown{Shutdown: &agentpb.Shutdown{
				Reason: reason,
			}}}
		case <-c.manifest:
			msg = &agentpb.ServerMessage{Message: &agentpb.ServerMessage_ManifestChanged{ManifestChanged: &agentpb.ManifestChanged{}}}
		}
		if msg.GetHeartbeatAck() == nil {
			asked = time.Now()
			watch.Reset(c.silence)
		}
		err := c.wire.AwaitWrite(sendTimeout)
		if err == nil {
			err = stream.Send(msg)
		}
		if err == nil {
			err = c.wire.AwaitWrite(0) // the next message may be far off
		}
		if err != nil {
			c.end(connect.NewError(connect.CodeUnavailable, err))
			for range acks { // until the reader has seen the end
			}
			return
		}
	}
}
