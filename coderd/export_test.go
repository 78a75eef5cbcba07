package coderd

import (
	"context"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
)

// Reachable returns the agents as users' own programs reach them.
func Reachable(s *Server) interface {
	MayConnect(ctx context.Context, actor rbac.Actor, agent uuid.UUID) error
} {
	return s.reachable()
}

// NewAnnouncer returns what turns announcements of policy into notifications.
func NewAnnouncer(told *notifications.Recorder) workspaces.Announcer { return announcer{told} }
