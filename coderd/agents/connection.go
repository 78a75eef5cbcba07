package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/agent/agentpb"
	"github.com/codermesh/codermesh/internal/notify"
)

const (
	helloTimeout = 10 * time.Second
	sendTimeout  = 30 * time.Second
	sendQueue    = 8 // answers to heartbeats that wait; one is the rule
)

var (
	errStopping = connect.NewError(connect.CodeUnavailable, errors.New("the server is stopping: connect again"))
	errRevoked  = connect.NewError(connect.CodePermissionDenied, errors.New("the workspace does not run this agent any more"))
	errReplaced = connect.NewError(connect.CodeAborted, errors.New("the agent has connected again"))
	errSilent   = connect.NewError(connect.CodeDeadlineExceeded, errors.New("no heartbeat came"))
)

// connection is one agent's Connect stream.
type connection struct {
	agent    uuid.UUID
	wire     *wire
	shutdown chan string  // capacity 1
	manifest notify.Wake  // the agent is to ask for its manifest
	latency  atomic.Int64 // microseconds to the home relay, 0 unknown

	stats atomic.Pointer[agentpb.StatsRequest] // what uses the workspace; nil: not told yet

	began time.Time // as stored; set before any disconnection is written
}

func (c *connection) end(cause error) { c.wire.end(cause) }

// askShutdown passes the request on; a second one changes nothing.
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

// wire holds the deadlines of a stream's HTTP exchange, by which a blocked read or write is ended from outside.
type wire struct {
	control *http.ResponseController
	silence time.Duration

	mu    sync.Mutex // guards cause, and the order of deadlines
	cause error      // why it was ended, nil while it is not
}

// await gives the next read its time.
func (w *wire) await(d time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause != nil {
		return w.cause
	}
	return w.control.SetReadDeadline(time.Now().Add(d))
}

// end fails the present and all later reads. Only the first cause counts.
func (w *wire) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause = cause
		// The only error is "not supported", which await has met before.
		_ = w.control.SetReadDeadline(time.Unix(1, 0))
	}
}

func (w *wire) why() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// withWire lets a stream's handler reach its exchange's deadlines, which the RPC library hides.
func withWire(next http.Handler, silence time.Duration) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &wire{control: http.NewResponseController(rw), silence: silence}
		next.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), wireKey{}, w)))
	})
}

type wireKey struct{}

// serve answers heartbeats, hands further hellos to hello, and passes requests on until the stream ends. It returns why.
func (c *connection) serve(ctx context.Context, stream *connect.BidiStream[agentpb.AgentMessage, agentpb.ServerMessage], hello func(*agentpb.Hello) error) error {
	acks := make(chan *agentpb.ServerMessage, sendQueue)
	var sender sync.WaitGroup
	sender.Go(func() { c.send(stream, acks) })
	defer sender.Wait()
	defer close(acks)
	for {
		if err := c.wire.await(c.wire.silence); err != nil {
			return err
		}
		msg, err := stream.Receive()
		switch {
		case err == nil:
		case c.wire.why() != nil:
			return c.wire.why()
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
				return connect.NewError(connect.CodeResourceExhausted, errors.New("heartbeats come faster than their answers are read"))
			}
		}
	}
}

// send writes to the stream until acks is closed. A write that fails ends the stream.
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
		err := c.wire.control.SetWriteDeadline(time.Now().Add(sendTimeout))
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
