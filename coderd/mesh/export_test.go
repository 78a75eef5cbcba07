package mesh

import (
	"time"

	"github.com/google/uuid"
)

// KeepAgents sets how long an introduction outlives its last connection. Call it before Start.
func (s *Service) KeepAgents(d time.Duration) { s.keep = d }

// DialBackAfter sets how long this server lets another one dial. Call it before SetReplicas.
func (s *Service) DialBackAfter(d time.Duration) { s.dialBack = d }

// MostClients sets how many clients of one user may be connected. Call it before Start.
func (s *Service) MostClients(n int) { s.crowd.most = n }

// FillJoins makes this server too busy for agents until the function that it returns is called.
func (s *Service) FillJoins() (empty func()) {
	s.joins.mu.Lock()
	defer s.joins.mu.Unlock()
	level, most := s.joins.level, s.joins.most
	s.joins.level, s.joins.most = 0, 0
	return func() {
		s.joins.mu.Lock()
		defer s.joins.mu.Unlock()
		s.joins.level, s.joins.most = level, most
	}
}

// Introduced returns the number of agents that this server is introduced to, or about to be.
func (s *Service) Introduced() int {
	s.introductions.Lock()
	defer s.introductions.Unlock()
	return len(s.introductions.byID)
}

// Provisioners returns the number of daemons that this server remembers.
func (s *Service) Provisioners() int {
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	return len(s.provisioners.byID)
}

// AgeProvisioners lets time pass for what this server remembers about daemons.
func (s *Service) AgeProvisioners(d time.Duration) {
	s.provisioners.Lock()
	defer s.provisioners.Unlock()
	for id, p := range s.provisioners.byID {
		p.known = p.known.Add(-d)
		s.provisioners.byID[id] = p
	}
}

// AgentConnected reports whether the agent is connected to this server's coordinator now.
func (s *Service) AgentConnected(agentID uuid.UUID) bool { return s.coord.Online(agentID) }

// Group returns the group of a peer at this server's node, and whether the node knows the peer.
func (s *Service) Group(id uuid.UUID) (uuid.UUID, bool) {
	for _, p := range s.node.Peers() {
		if p.ID == id {
			return p.Group, true
		}
	}
	return uuid.Nil, false
}
