package users

import (
	"context"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

// notifyAdmins notifies those who manage users of what happened to an account, except who did it and the account's
// user.
func (s *Service) notifyAdmins(
	ctx context.Context, q *dbsqlc.Queries, t notifications.Template, user dbsqlc.User,
) error {
	by, name := notifications.Initiator(ctx)
	return s.notifications.Record(ctx, q, notifications.Event{
		Template: t, Roles: []string{rbac.RoleOwner, rbac.RoleUserAdmin}, Except: []uuid.UUID{by, user.ID},
		Targets: []uuid.UUID{user.ID},
		Labels:  map[string]string{"account": user.Username, "initiator": name},
	})
}

// notifyUser notifies the user of what happened to their account, also while it is suspended.
func (s *Service) notifyUser(ctx context.Context, q *dbsqlc.Queries, t notifications.Template, user dbsqlc.User) error {
	_, name := notifications.Initiator(ctx)
	return s.notifications.Record(ctx, q, notifications.Event{
		Template: t, To: []uuid.UUID{user.ID}, Targets: []uuid.UUID{user.ID}, Suspended: true,
		Labels: map[string]string{"account": user.Username, "initiator": name},
	})
}
