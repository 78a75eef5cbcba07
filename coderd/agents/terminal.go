package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/audit"
	"github.com/codermesh/codermesh/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/coderd/httpapi"
	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/meshport"
	"github.com/codermesh/codermesh/internal/ptywire"
	"github.com/codermesh/codermesh/internal/websock"
)

const (
	terminalReadLimit = 1 << 20 // bytes of one message: a large paste
	// terminalSendTime is how long a browser may take for one piece of output.
	terminalSendTime = 30 * time.Second
)

// openTerminal is one browser that views a terminal.
type openTerminal struct {
	agent uuid.UUID
	end   context.CancelFunc
}

// terminal joins a browser to a terminal of the agent: GET …/pty?reconnect=ID&height=&width=&command=. The browser sends
// messages as ptywire.Message, and gets output as binary messages. The close status tells whether the shell has ended (1000)
// or may still run (every other status): the same id then brings it back.
func (s *Service) terminal(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Connect)
	if err != nil {
		return err
	}
	req, err := terminalRequest(r)
	if err != nil {
		return err
	}
	// Track before admitting: either a revocation finds the terminal, or the check finds the revocation.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.track(&openTerminal{agent: a.ID, end: cancel})()
	if err := s.MayConnect(ctx, httpapi.ActorFrom(ctx), a.ID); err != nil {
		return err
	}
	conn, err := s.opts.Mesh.DialAgent(ctx, a.ID, meshport.Terminal)
	if err != nil {
		return unreachable(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	defer context.AfterFunc(s.life, cancel)()
	if err := ptywire.WriteJSON(conn, ptywire.Open, req); err != nil {
		return unreachable(err)
	}
	ws, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: terminalReadLimit})
	if err != nil {
		return nil // already answered
	}

	session := s.opts.Connections.Begin(audit.Connection{
		Type: audit.Terminal, Agent: a.ID, User: httpapi.ActorFrom(ctx).UserID, Addr: httpapi.ClientAddr(ctx), UserAgent: r.UserAgent(),
	})
	counted := audit.Counted(conn, session)
	var typing sync.WaitGroup
	typing.Go(func() {
		defer cancel()
		s.typeInto(context.WithoutCancel(r.Context()), ws, counted) // a canceled read would cut the connection before its final messages
	})
	status, reason := s.showTerminal(context.WithoutCancel(r.Context()), ws, counted)
	if ended := httpapi.SessionEnded(r.Context()); ended != nil {
		status, reason = websock.StatusPolicy, ended.Message
	} else if s.life.Err() != nil {
		status, reason = websock.StatusGoingAway, "the server is stopping"
	}
	err = ws.Close(status, reason)
	typing.Wait()
	session.End(cmp.Or(reason, "closed by the client"), 0)
	return err
}

// reachable returns the agent in the path if the actor may open connections to it and its workspace runs.
func (s *Service) reachable(r *http.Request) (dbsqlc.GetAgentOwnerRow, error) {
	a, err := s.find(r, rbac.Connect)
	if err != nil {
		return a, err
	}
	return a, s.MayConnect(r.Context(), httpapi.ActorFrom(r.Context()), a.ID)
}

func unreachable(err error) error {
	if fault.As(err) != nil {
		return err
	}
	return fault.New(fault.Unavailable, "The workspace's agent cannot be reached: %w", err).WithDetail("Try again in a moment.")
}

func terminalRequest(r *http.Request) (ptywire.Request, error) {
	q := r.URL.Query()
	id, err := uuid.Parse(q.Get("reconnect"))
	if err != nil || id == uuid.Nil {
		return ptywire.Request{}, fault.New(fault.Invalid, "The query parameter reconnect is not an id.").WithField("reconnect", "must be a UUID that names the terminal")
	}
	req := ptywire.Request{ID: id, Command: q.Get("command")}
	if len(req.Command) > ptywire.MaxCommand {
		return req, fault.New(fault.Invalid, "The query parameter command is too long.").WithField("command", "must be at most 64 KiB")
	}
	for name, into := range map[string]*uint16{"height": &req.Height, "width": &req.Width} {
		if q.Get(name) == "" {
			continue
		}
		n, err := strconv.ParseUint(q.Get(name), 10, 16)
		if err != nil {
			return req, fault.New(fault.Invalid, "The query parameter %s cannot be %q.", name, q.Get(name)).WithField(name, "must be a number of characters")
		}
		*into = uint16(n)
	}
	return req, nil
}

// typeInto forwards the browser's messages until it leaves or sends something invalid.
func (s *Service) typeInto(ctx context.Context, ws *websock.Conn, conn net.Conn) {
	for {
		data, err := ws.ReadAny(ctx)
		if err != nil {
			return
		}
		for dec := json.NewDecoder(bytes.NewReader(data)); ; {
			var m ptywire.Message
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				s.log.DebugContext(ctx, "cannot read terminal message", "err", err)
				return
			}
			if err := m.Forward(conn); err != nil {
				return // the other direction reports why
			}
		}
	}
}

// showTerminal forwards the agent's output until it ends, and reports how it ended.
func (s *Service) showTerminal(ctx context.Context, ws *websock.Conn, conn net.Conn) (websock.Status, string) {
	for {
		kind, payload, err := ptywire.Read(conn)
		if err != nil {
			return websock.StatusTryAgain, "the connection to the workspace was lost: reopen the terminal to continue"
		}
		switch kind {
		case ptywire.Output:
			send, cancel := context.WithTimeout(ctx, terminalSendTime)
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

// track registers an open terminal until the caller calls the returned function.
func (s *Service) track(t *openTerminal) (done func()) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	s.terminals.open[t] = struct{}{}
	return func() {
		s.terminals.Lock()
		defer s.terminals.Unlock()
		delete(s.terminals.open, t)
	}
}

// endTerminals ends the terminals that match the predicate.
func (s *Service) endTerminals(which func(*openTerminal) bool) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	for t := range s.terminals.open {
		if which(t) {
			t.end()
		}
	}
}
