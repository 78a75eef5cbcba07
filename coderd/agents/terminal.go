package agents

import (
	"cmp"
	"context"
	"net/http"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/meshport"
	"github.com/codermesh/codermesh/v2/internal/ptyweb"
	"github.com/codermesh/codermesh/v2/internal/ptywire"
	"github.com/codermesh/codermesh/v2/internal/websock"
)

// openTerminal is one browser that views a terminal, or does something with files.
type openTerminal struct {
	agent uuid.UUID
	end   context.CancelFunc
}

// terminal joins a browser to a terminal of the agent: GET …/pty?reconnect=ID&height=&width=&command=, as package
// ptyweb describes.
func (s *Service) terminal(w http.ResponseWriter, r *http.Request) error {
	a, err := s.find(r, rbac.Connect)
	if err != nil {
		return s.refused(r, audit.Terminal, "", err)
	}
	req, err := ptyweb.ParseRequest(r.URL.Query())
	if err != nil {
		return err
	}
	// Track before admitting: either a revocation finds the terminal, or the check finds the revocation.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer s.track(&openTerminal{agent: a.ID, end: cancel})()
	if err := s.MayConnect(ctx, httpapi.ActorFrom(ctx), a.ID); err != nil {
		return s.refused(r, audit.Terminal, "", err)
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
	ws, err := websock.Accept(w, r, websock.AcceptOptions{ReadLimit: ptyweb.ReadLimit})
	if err != nil {
		return nil // already answered
	}

	session := s.opts.Connections.Begin(audit.Connection{
		Type: audit.Terminal, Agent: a.ID, User: httpapi.ActorFrom(ctx).UserID, Addr: httpapi.ClientAddr(ctx),
		UserAgent: r.UserAgent(),
	})
	reason, err := ptyweb.Serve(context.WithoutCancel(ctx), s.log, ws, audit.Counted(conn, session), func() (websock.Status, string, bool) {
		if ended := httpapi.SessionEnded(r.Context()); ended != nil {
			return websock.StatusPolicy, ended.Message, true
		}
		return websock.StatusGoingAway, "the server is stopping", s.life.Err() != nil
	})
	session.End(cmp.Or(reason, "closed by the client"), 0)
	return err
}

// refused records that the user of a request may not connect to the agent in its path, and returns the reason.
func (s *Service) refused(r *http.Request, kind audit.ConnectionType, target string, reason error) error {
	id, err := httpapi.PathUUID(r, "workspaceagent")
	if err != nil {
		return reason
	}
	return s.opts.Connections.Refused(audit.Connection{
		Type: kind, Agent: id, User: httpapi.ActorFrom(r.Context()).UserID, Target: target,
		Addr: httpapi.ClientAddr(r.Context()), UserAgent: r.UserAgent(),
	}, reason)
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
	return fault.New(fault.Unavailable, "The workspace's agent cannot be reached: %w", err).
		WithDetail("Try again in a moment.")
}

// track registers an open terminal until the caller calls the returned function.
func (s *Service) track(t *openTerminal) (done func()) {
	s.terminals.Lock()
	defer s.terminals.Unlock()
	return s.trackLocked(t)
}

// trackLocked is track, for callers that hold the lock.
func (s *Service) trackLocked(t *openTerminal) (done func()) {
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
