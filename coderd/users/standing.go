package users

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/audit"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/httpapi"
	"github.com/codermesh/codermesh/v2/coderd/lookup"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// keepOwner refuses to remove the last owner, under a lock that lasts as long as the transaction.
func keepOwner(ctx context.Context, q *dbsqlc.Queries, user dbsqlc.User) error {
	if err := q.LockUsers(ctx); err != nil {
		return err
	}
	current, err := q.GetUser(ctx, user.ID)
	if database.IsNotFound(err) {
		return rbac.NotFound(rbac.User)
	}
	if err != nil {
		return err
	}
	if !slices.Contains(current.Roles, rbac.RoleOwner) {
		return nil
	}
	others, err := q.CountOtherOwners(ctx, user.ID)
	if err == nil && others == 0 {
		return fault.New(fault.Conflict, "%s is the last owner.", user.Username).
			WithDetail("Make another user an owner first.")
	}
	return err
}

func (s *Service) setStatus(status sdk.UserStatus) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		user, err := s.Target(r, rbac.Manage, rbac.User)
		if err != nil {
			return err
		}
		ctx := r.Context()
		suspend := status == sdk.UserSuspended
		var changed dbsqlc.User
		if suspend && user.ID == httpapi.ActorFrom(ctx).UserID {
			return fault.New(fault.Invalid, "You cannot suspend your own account.").WithDetail("Another owner can.")
		}
		err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
			change := s.Activate
			if suspend {
				change = s.Suspend
			}
			if changed, err = change(ctx, q, user); err != nil {
				return err
			}
			return audit.Record(ctx, q, audit.OfUser(user, changed))
		})
		if err != nil {
			return fmt.Errorf("change the user's status: %w", err)
		}
		s.log.Info("user's status changed", "user", user.Username, "status", status)
		if suspend {
			s.notifyRevoked(user.ID)
		}
		return s.write(w, r, http.StatusOK, changed)
	}
}

func (s *Service) getRoles(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Read, rbac.User)
	if err != nil {
		return err
	}
	rows, err := s.db.ListMemberships(r.Context(), []uuid.UUID{user.ID})
	if err != nil {
		return fmt.Errorf("list memberships: %w", err)
	}
	out := sdk.UserRoles{Roles: append([]string{}, user.Roles...), OrganizationRoles: sdk.Map[sdk.List[string]]{}}
	for _, row := range rows {
		out.OrganizationRoles[row.OrganizationID.String()] = row.Roles
	}
	return httpapi.Write(w, http.StatusOK, out)
}

// listRoles lists the existing roles, and whether the actor may grant them.
func (s *Service) listRoles(w http.ResponseWriter, r *http.Request) error {
	actor := httpapi.ActorFrom(r.Context())
	may := actor.May(rbac.Manage, rbac.Of(rbac.User, uuid.Nil)) == nil
	out := sdk.List[sdk.AssignableRole]{}
	for _, name := range []string{rbac.RoleOwner, rbac.RoleUserAdmin, rbac.RoleTemplateAdmin, rbac.RoleAuditor} {
		appoint := may && actor.MayGive(name, rbac.SitePowers(name), uuid.Nil) == nil
		out = append(out, sdk.AssignableRole{
			DetailedRole: sdk.DetailedRole{Name: name, DisplayName: Role(name).DisplayName}, Assignable: appoint,
			BuiltIn: true,
		})
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func (s *Service) setRoles(w http.ResponseWriter, r *http.Request) error {
	user, err := s.Target(r, rbac.Manage, rbac.User)
	if err != nil {
		return err
	}
	if s.syncedRoles && user.LoginType == string(sdk.LoginOIDC) {
		return fault.New(fault.Conflict, "The identity provider decides about the roles of %s.", user.Username).
			WithDetail("Change them there. The operator names the claim with --oidc-user-role-field.")
	}
	var req sdk.UpdateRolesRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return err
	}
	roles := []string{}
	for _, role := range req.Roles {
		switch {
		case role == "member" || slices.Contains(roles, role):
		case rbac.IsSiteRole(role):
			roles = append(roles, role)
		default:
			f := fault.New(fault.Invalid, "The role %q does not exist.", role)
			if near := nearest.To(role, rbac.SiteRoles()); near != "" {
				f = f.WithDetail("Did you mean %s?", near)
			}
			return f.WithField("roles", "must be "+strings.Join(rbac.SiteRoles(), ", ")+" or member")
		}
	}
	slices.Sort(roles)
	ctx := r.Context()
	var changed dbsqlc.User
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		if !slices.Contains(roles, rbac.RoleOwner) {
			if err := keepOwner(ctx, q, user); err != nil {
				return err
			}
		}
		if _, err := q.LockUser(ctx, user.ID); err != nil {
			return lookup.Fault(err, rbac.User, "lock user")
		}
		before, err := q.GetUser(ctx, user.ID)
		if err != nil {
			return lookup.Fault(err, rbac.User, "read user")
		}
		for _, role := range slices.Concat(roles, before.Roles) {
			if slices.Contains(roles, role) && slices.Contains(before.Roles, role) {
				continue // it stays
			}
			if err := httpapi.ActorFrom(ctx).MayGive(role, rbac.SitePowers(role), uuid.Nil); err != nil {
				return err
			}
		}
		if changed, err = q.UpdateUserRoles(ctx, dbsqlc.UpdateUserRolesParams{ID: user.ID, Roles: roles}); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfUser(before, changed))
	})
	if err != nil {
		return fmt.Errorf("change the user's roles: %w", err)
	}
	s.log.Info("user's roles changed", "user", user.Username, "roles", strings.Join(roles, ","))
	s.notifyRevoked(user.ID)
	return s.write(w, r, http.StatusOK, changed)
}
