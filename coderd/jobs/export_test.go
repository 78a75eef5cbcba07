package jobs

import (
	"context"
	"time"

	"github.com/google/uuid"
)

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

// HearFor lets the service have been there to hear its daemons for d.
func (s *Service) HearFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.there = time.Now().Add(-d)
}

// LookForAbsences does what a heartbeat does after it was stored.
func (s *Service) LookForAbsences(ctx context.Context) error { return s.lookForAbsences(ctx) }

// Due returns how many leases without a stream are about to be settled.
func (s *Service) Due() int { return len(s.due()) }
