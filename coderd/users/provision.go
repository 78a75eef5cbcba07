package users

import (
	"context"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/notifications"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// Suspend ends a user's sessions, and refuses the account until Activate, in a transaction. It returns a fault for the
// last owner of the deployment.
func (s *Service) Suspend(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (dbsqlc.User, error) {
	if err := keepOwner(ctx, q, user); err != nil {
		return user, err
	}
	// Tokens are kept but refused until the account is active again; sessions end for good.
	if err := q.DeleteUserKeys(ctx, dbsqlc.DeleteUserKeysParams{UserID: user.ID, Kinds: []string{kindSession}}); err != nil {
		return user, err
	}
	changed, err := q.UpdateUserStatus(ctx, dbsqlc.UpdateUserStatusParams{
		ID: user.ID, Status: string(sdk.UserSuspended),
	})
	if err != nil || user.Status == string(sdk.UserSuspended) {
		return changed, err
	}
	if err := s.notifyAdmins(ctx, q, notifications.UserSuspended, changed); err != nil {
		return changed, err
	}
	return changed, s.notifyUser(ctx, q, notifications.YourAccountSuspended, changed)
}

// Activate accepts the account again, in a transaction.
func (s *Service) Activate(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) (dbsqlc.User, error) {
	changed, err := q.UpdateUserStatus(ctx, dbsqlc.UpdateUserStatusParams{ID: user.ID, Status: string(sdk.UserActive)})
	if err != nil || user.Status != string(sdk.UserSuspended) {
		return changed, err
	}
	if err := s.notifyAdmins(ctx, q, notifications.UserActivated, changed); err != nil {
		return changed, err
	}
	return changed, s.notifyUser(ctx, q, notifications.YourAccountActivated, changed)
}
