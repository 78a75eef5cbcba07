// Package ptyweb joins a browser's websocket to a terminal of an agent, at a server or at a region proxy. It does not
// decide who may open which terminal.
//
// The browser sends ptywire.Message as JSON, and receives output as binary messages. The close status tells whether the
// shell has ended (1000) or may still run (every other status): the same id then brings it back.
package ptyweb

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

const (
	// ReadLimit is the read limit of the websocket: a large paste, in bytes.
	ReadLimit = 1 << 20
	// sendTime is how long a browser may take for one piece of output.
	sendTime = 30 * time.Second
)

// ParseRequest reads the query of a terminal's address: reconnect=ID&height=&width=&command=. Its errors are faults.
func ParseRequest(q url.Values) (ptywire.Request, error) {
	id, err := uuid.Parse(q.Get("reconnect"))
	if err != nil || id == uuid.Nil {
		return ptywire.Request{}, fault.New(fault.Invalid, "The query parameter reconnect is not an id.").
			WithField("reconnect", "must be a UUID that names the terminal")
	}
	req := ptywire.Request{ID: id, Command: q.Get("command")}
	if len(req.Command) > ptywire.MaxCommand {
		return req, fault.New(fault.Invalid, "The query parameter command is too long.").
			WithField("command", "must be at most 64 KiB")
	}
	for name, into := range map[string]*uint16{"height": &req.Height, "width": &req.Width} {
		if q.Get(name) == "" {
			continue
		}
		n, err := strconv.ParseUint(q.Get(name), 10, 16)
		if err != nil {
			return req, fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, q.Get(name)).
				WithField(name, "must be a number of characters")
		}
		*into = uint16(n)
	}
	return req, nil
}

// Serve joins a browser to a terminal until one of them ends, and closes both. canceled reports why the caller has
// closed conn, if it has. Serve returns the reason that the browser was told, "" if the browser left. A canceled ctx
// cuts the websocket before its final messages.
func Serve(
	ctx context.Context, log *slog.Logger, ws *websock.Conn, conn net.Conn,
	canceled func() (websock.Status, string, bool),
) (reason string, err error) {
	var typing sync.WaitGroup
	var left atomic.Bool
	typing.Go(func() {
		defer conn.Close()
		left.Store(typeInto(ctx, log, ws, conn))
	})
	status, reason := show(ctx, ws, conn)
	if status == websock.StatusTryAgain && left.Load() { // conn was closed for that
		status, reason = websock.StatusGoingAway, ""
	}
	if why, text, ok := canceled(); ok {
		status, reason = why, text
	}
	err = ws.Close(status, reason)
	conn.Close()
	typing.Wait()
	return reason, err
}

// typeInto forwards the browser's messages until it leaves, which typeInto reports, or sends something invalid.
func typeInto(ctx context.Context, log *slog.Logger, ws *websock.Conn, conn net.Conn) (left bool) {
	for {
		data, err := ws.ReadAny(ctx)
		if err != nil {
			return true
		}
		for dec := json.NewDecoder(bytes.NewReader(data)); ; {
			var m ptywire.Message
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				log.DebugContext(ctx, "cannot read terminal message", "err", err)
				return false
			}
			if err := m.Forward(conn); err != nil {
				return false // the other direction reports why
			}
		}
	}
}

// show forwards the agent's output until it ends, and reports how it ended.
func show(ctx context.Context, ws *websock.Conn, conn net.Conn) (websock.Status, string) {
	for {
		kind, payload, err := ptywire.Read(conn)
		if err != nil {
			return websock.StatusTryAgain, "the connection to the workspace was lost: reopen the terminal to continue"
		}
		switch kind {
		case ptywire.Output:
			send, cancel := context.WithTimeout(ctx, sendTime)
			err := ws.WriteBinary(send, payload)
			cancel()
			if err != nil {
				return websock.StatusGoingAway, ""
			}
		case ptywire.Exit:
			var end ptywire.End
			if err := json.Unmarshal(payload, &end); err != nil {
				return websock.StatusInternal, "the workspace's agent uses another protocol version"
			}
			text := fmt.Sprintf("exit status %d", end.Code)
			if end.Reason != "" {
				text += ": " + end.Reason
			}
			return websock.StatusNormal, text
		}
	}
}
