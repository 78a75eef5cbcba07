package coderd

import (
	"context"

	"github.com/codermesh/codermesh/v2/internal/secret"
)

// SetupCode returns what the sender of the first user must know, and "" once there are users.
func (s *Server) SetupCode(ctx context.Context) (secret.Token, error) {
	awaits, err := s.Users.AwaitsFirst(ctx)
	if err != nil || !awaits {
		return "", err
	}
	return s.opts.SetupCode, nil
}
