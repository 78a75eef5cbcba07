package coordinator

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coordinator/protocol"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

// Two processes with the same agent token (a cloned machine or container, a start script that ran twice) cannot both be
// the agent. The connected one stays while it answers. The other is refused and tries again with growing pauses, so
// neither ends the other, and one takes over when the other is gone. A restarted process is admitted at once, because
// its predecessor's connection has ended or does not answer. A connection with the same node key is the same process.

const (
	// duplicateTime is how long a connected agent may take to answer when another process presents its token.
	duplicateTime = 2 * time.Second
	// contestedTime is how long an agent counts as contested after another process was refused, which tries again
	// within 15 s.
	contestedTime = 45 * time.Second
)

func errTwoAgents() *fault.Error {
	return fault.New(fault.Unavailable, "another agent with the same token is connected").
		WithDetail("Two machines or processes run the same agent, such as a copy of the workspace. Stop one of them. This one tries again in a while.")
}

// duplicate is a connection of an agent, here or to another server.
type duplicate struct {
	here   *session
	remote remoteDuplicate
}

// duplicate returns the connection of another process of the same agent, or the zero value. Called with mu held.
func (s *Server) duplicate(p Principal, h protocol.Hello) duplicate {
	row := s.peers[p.ID]
	switch {
	case p.Kind != protocol.KindAgent || row == nil || row.state != online || row.key == h.Key:
		return duplicate{}
	case row.remote != nil:
		return duplicate{remote: remoteDuplicate{row.remote.server, row.key}}
	}
	return duplicate{here: row.session}
}

// duplicateAnswers reports whether the other end of a duplicate's connection answers.
func (s *Server) duplicateAnswers(ctx context.Context, id uuid.UUID, other duplicate) (bool, error) {
	if other.here != nil {
		return answers(ctx, other.here), nil
	}
	return s.probe(ctx, id, other.remote)
}

// answers reports whether the other end of a connection answers.
func answers(ctx context.Context, x *session) bool {
	conn, ok := x.conn.(interface{ Ping(context.Context) error })
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, duplicateTime)
	defer cancel()
	return conn.Ping(ctx) == nil
}

// contested notes that another process was refused.
func (s *Server) contested(id uuid.UUID) {
	s.mu.Lock()
	row := s.peers[id]
	first := false
	if row != nil {
		first = time.Since(row.contested) > contestedTime
		row.contested = time.Now()
	}
	s.mu.Unlock()
	if first {
		s.log.Warn("two agents use one token, the second is refused", "node", id)
	}
}

// Contested reports whether a process other than the connected one has recently tried to be this agent.
func (s *Server) Contested(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	row := s.peers[id]
	return row != nil && row.state == online && time.Since(row.contested) <= contestedTime
}
