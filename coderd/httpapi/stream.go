package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

const (
	// sendTimeout bounds one message to a reader that accepts nothing.
	sendTimeout = 30 * time.Second
	// lastSend bounds the message that is being written when its stream ends: interrupting a write breaks the
	// connection, and the reader would not learn the reason.
	lastSend = 2 * time.Second
)

// Event is one message of a stream.
//
//	             server-sent events            websocket
//	Type, Data   event: Type, data: Data       {"type": Type, "data": Data}
//	Type         event: Type                   {"type": Type}
//	Data         data: Data                    Data
//	ID           id: ID, besides the above    nothing
//	neither      a comment, as a keep-alive    nothing: websockets have pings
type Event struct {
	ID   string // one line; readers resume after it
	Type string
	Data any // encoded as JSON; nil for none
}

// Follow fills a stream. It sends until ctx ends, a send fails, or there is nothing more to send, and then it returns;
// it may return errors of ctx and of send as they are. On a stream of server-sent events, the events of one send call
// leave in one write.
type Follow func(ctx context.Context, send func(...Event) error) error

// StreamServer is ServeEvents or ServeWebsocket.
type StreamServer func(http.ResponseWriter, *http.Request, StreamOptions, Follow) error

// EndStream is an error with which a Follow ends its stream normally, with a reason for the reader.
type EndStream string

func (e EndStream) Error() string { return string(e) }

// StreamOptions configures all streams of one kind. Every field is required.
type StreamOptions struct {
	// Life ends with the service, which also ends its streams.
	Life   context.Context
	Logger *slog.Logger
	// Failed is the message to a websocket's reader when Follow fails, as a clause. A fault's own message takes
	// precedence.
	Failed string
}

// ServeEvents answers with server-sent events until follow returns, the reader leaves, the session ends or the service
// stops. It always returns nil: once the answer has begun, an error can only end it.
func ServeEvents(w http.ResponseWriter, r *http.Request, opts StreamOptions, follow Follow) error {
	w.Header().Set("Content-Type", "text/event-stream")
	NoStore(w.Header())
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that buffers answers would delay events
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(opts.Life, cancel)()
	// Subsequent requests on this connection have their own deadlines.
	defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	cutting := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cutting)
		_ = control.SetWriteDeadline(time.Now().Add(lastSend)) // fails only if the one below has failed
	})
	defer func() {
		if !stop() {
			<-cutting // otherwise its deadline could be set after the deferred reset
		}
	}()
	err := follow(ctx, func(all ...Event) error {
		text, err := eventText(all)
		if err != nil {
			return err
		}
		if err := control.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
		if ctx.Err() != nil { // checked last: if ctx ends after this, the deadline is shortened
			return ctx.Err()
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("send event: %w", err)
		}
		return control.Flush()
	})
	if err != nil && ctx.Err() == nil {
		opts.Logger.DebugContext(r.Context(), "stream ended", "path", r.URL.Path, "err", err)
	}
	return nil
}

// ServeWebsocket is like ServeEvents for a websocket. The close frame states why the stream ends: nothing more to send
// (Normal), the service is stopping (GoingAway), the session has ended (Policy), or Follow failed (TryAgain).
func ServeWebsocket(w http.ResponseWriter, r *http.Request, opts StreamOptions, follow Follow) error {
	ws, err := websock.Accept(w, r, websock.AcceptOptions{})
	if err != nil {
		return nil // Accept has already answered
	}
	connected, done := ws.Drain(context.WithoutCancel(r.Context())) // interrupting a read would break the connection before the close frame
	defer done()
	ctx, cancel := context.WithCancel(connected)
	defer cancel()
	defer context.AfterFunc(r.Context(), cancel)()
	defer context.AfterFunc(opts.Life, cancel)()
	err = follow(ctx, func(all ...Event) error {
		for _, e := range all {
			if err := sendMessage(ctx, ws, e); err != nil {
				return err
			}
		}
		return nil
	})
	if ended := SessionEnded(r.Context()); ended != nil {
		return ws.Close(websock.StatusPolicy, ended.Message)
	}
	switch {
	case connected.Err() != nil || r.Context().Err() != nil:
		return nil // the reader left
	case opts.Life.Err() != nil:
		return ws.Close(websock.StatusGoingAway, "the server is stopping")
	case err == nil:
		return ws.Close(websock.StatusNormal, "")
	}
	if end, ok := errors.AsType[EndStream](err); ok {
		return ws.Close(websock.StatusNormal, string(end))
	}
	opts.Logger.DebugContext(r.Context(), "stream ended", "path", r.URL.Path, "err", err)
	reason := opts.Failed
	if f := fault.As(err); f != nil {
		reason = f.Message
	}
	return ws.Close(websock.StatusTryAgain, reason)
}

// sendMessage sends one event. After ctx ends, it has lastSend to finish.
func sendMessage(ctx context.Context, ws *websock.Conn, e Event) error {
	var message any
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case e.Type == "" && e.Data == nil:
		return nil
	case e.Type == "":
		message = e.Data
	default:
		message = struct {
			Type string `json:"type"`
			Data any    `json:"data,omitempty"`
		}{e.Type, e.Data}
	}
	send, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lastSend, cancel)
		defer timer.Stop()
		<-send.Done()
	})()
	return ws.WriteJSON(send, message)
}

// eventText returns the events in the format of server-sent events.
func eventText(all []Event) ([]byte, error) {
	var text bytes.Buffer
	for _, e := range all {
		if e.Type == "" && e.Data == nil {
			text.WriteString(": ping\n\n")
			continue
		}
		if e.ID != "" {
			text.WriteString("id: " + e.ID + "\n")
		}
		if e.Type != "" {
			text.WriteString("event: " + e.Type + "\n")
		}
		if e.Data != nil {
			data, err := json.Marshal(e.Data) // a single line
			if err != nil {
				return nil, fmt.Errorf("encode event: %w", err)
			}
			text.WriteString("data: ")
			text.Write(data)
			text.WriteByte('\n')
		}
		text.WriteByte('\n')
	}
	return text.Bytes(), nil
}
