package signin

import (
	"context"
	"time"
)

// CheckNow renews every sign-in of users with sessions, whenever it was renewed last.
func (s *Service) CheckNow(ctx context.Context) error { return s.check(ctx, time.Now()) }

// MarkDormantNow is what the service does every hour.
func (s *Service) MarkDormantNow(ctx context.Context) { s.markDormant(ctx) }
