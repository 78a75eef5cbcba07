package jobs

import "github.com/google/uuid"

// Unapplied returns how many messages of a connected daemon the server has read and not begun to apply.
func (s *Service) Unapplied(daemon uuid.UUID) int {
	s.mu.Lock()
	x := s.sessions[daemon]
	s.mu.Unlock()
	if x == nil {
		return 0
	}
	x.in.mu.Lock()
	defer x.in.mu.Unlock()
	return len(x.in.messages)
}
