package organizations

import (
	"cmp"
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
	"github.com/codermesh/codermesh/v2/coderd/users"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func (s *Service) listRoles(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Read, rbac.OrganizationRole)
	if err != nil {
		return err
	}
	custom, err := s.db.ListOrganizationRoles(r.Context(), org.ID)
	if err != nil {
		return fmt.Errorf("list roles: %w", err)
	}
	actor := httpapi.ActorFrom(r.Context())
	may := actor.May(rbac.Update, rbac.Of(rbac.OrganizationMember, uuid.Nil).In(org.ID)) == nil
	out := sdk.List[sdk.AssignableRole]{}
	add := func(role sdk.DetailedRole, powers []rbac.Power, builtIn bool) {
		_, lacks := actor.Lacks(org.ID, powers)
		out = append(out, sdk.AssignableRole{DetailedRole: role, Assignable: may && !lacks, BuiltIn: builtIn})
	}
	for _, name := range rbac.OrganizationRoles() {
		powers := rbac.RolePowers(name)
		add(detailed(org.ID, name, "", powers), powers, true)
	}
	for _, role := range custom {
		add(toRole(role), role.Powers, false)
	}
	return httpapi.Write(w, http.StatusOK, out)
}

func toRole(r dbsqlc.OrganizationRole) sdk.DetailedRole {
	return detailed(r.OrganizationID, r.Name, r.DisplayName, r.Powers)
}

func detailed(org uuid.UUID, name, display string, powers []rbac.Power) sdk.DetailedRole {
	return sdk.DetailedRole{
		Name: name, OrganizationID: org.String(), DisplayName: cmp.Or(display, users.Role(name).DisplayName),
		OrganizationPermissions: permissionsOf(powers),
	}
}

// role reads and checks the custom role in the request. The actor must hold all its powers.
func (s *Service) role(
	w http.ResponseWriter, r *http.Request, org uuid.UUID,
) (name, display string, powers []rbac.Power, err error) {
	var req sdk.CustomRoleRequest
	if err := httpapi.Read(w, r, &req); err != nil {
		return "", "", nil, err
	}
	f := fault.New(fault.Invalid, "The role is not valid.")
	switch {
	case !nameForm().MatchString(req.Name) || len(req.Name) > 64:
		f.WithField("name", "must be at most 64 lower-case letters and digits, with single hyphens between them")
	case rbac.IsOrganizationRole(req.Name) || rbac.IsSiteRole(req.Name) || req.Name == rbac.RelationMember || req.Name == "member":
		f.WithField("name", "is the name of a built-in role")
	}
	if len(req.DisplayName) > 64 || strings.ContainsFunc(req.DisplayName, httpapi.Hidden) {
		f.WithField("display_name", "must have at most 64 characters, all of them visible")
	}
	for field, given := range map[string]sdk.List[sdk.Permission]{
		"site_permissions": req.SitePermissions, "user_permissions": req.UserPermissions, "organization_member_permissions": req.OrganizationMemberPermissions,
	} {
		if len(given) > 0 {
			f.WithField(field, "must be empty: custom roles have permissions in their organization only")
		}
	}
	powers, problem := powersOf(req.OrganizationPermissions)
	if problem != "" {
		f.WithField("organization_permissions", problem)
	}
	if len(f.Fields) > 0 {
		return "", "", nil, f
	}
	return req.Name, req.DisplayName, powers, holdsAll(httpapi.ActorFrom(r.Context()), org, powers)
}

// holdsAll returns a fault unless the actor holds every power.
func holdsAll(actor rbac.Actor, org uuid.UUID, powers []rbac.Power) error {
	if lack, ok := actor.Lacks(org, powers); ok {
		return fault.New(fault.Forbidden, "The role has powers that you do not have.").WithDetail("%s", lack)
	}
	return nil
}

func (s *Service) createRole(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Create, rbac.OrganizationRole)
	if err != nil {
		return err
	}
	name, display, powers, err := s.role(w, r, org.ID)
	if err != nil {
		return err
	}
	ctx := r.Context()
	var role dbsqlc.OrganizationRole
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) (err error) {
		if _, err := q.HoldOrganization(ctx, org.ID); err != nil {
			return lookup.Fault(err, rbac.Organization, "hold organization")
		}
		role, err = q.InsertOrganizationRole(ctx, dbsqlc.InsertOrganizationRoleParams{
			OrganizationID: org.ID, Name: name, DisplayName: display, Powers: powers,
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfCustomRole(dbsqlc.OrganizationRole{}, role))
	})
	if database.IsUniqueViolation(err, "") {
		return fault.New(fault.Conflict, "The organization already has a role named %q.", name).
			WithField("name", "is taken")
	}
	if err != nil {
		return fmt.Errorf("store role: %w", err)
	}
	s.log.Info("role created", "user", httpapi.ActorFrom(ctx).Username, "organization", org.Name, "role", name)
	return httpapi.Write(w, http.StatusOK, toRole(role))
}

func (s *Service) updateRole(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Update, rbac.OrganizationRole)
	if err != nil {
		return err
	}
	name, display, powers, err := s.role(w, r, org.ID)
	if err != nil {
		return err
	}
	ctx, actor := r.Context(), httpapi.ActorFrom(r.Context())
	var role dbsqlc.OrganizationRole
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		old, err := q.LockOrganizationRole(ctx, dbsqlc.LockOrganizationRoleParams{OrganizationID: org.ID, Name: name})
		if err != nil {
			return lookup.Fault(err, rbac.OrganizationRole, "lock role")
		}
		// Taking a power from its holders needs that power, as giving it does.
		if err := holdsAll(actor, org.ID, old.Powers); err != nil {
			return err
		}
		role, err = q.UpdateOrganizationRole(ctx, dbsqlc.UpdateOrganizationRoleParams{
			OrganizationID: org.ID, Name: name, DisplayName: display, Powers: powers,
		})
		if err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfCustomRole(old, role))
	})
	if err != nil {
		return fmt.Errorf("change role: %w", err)
	}
	s.log.Info("role changed", "user", actor.Username, "organization", org.Name, "role", name)
	return httpapi.Write(w, http.StatusOK, toRole(role))
}

func (s *Service) removeRole(w http.ResponseWriter, r *http.Request) error {
	org, err := s.organization(r, rbac.Delete, rbac.OrganizationRole)
	if err != nil {
		return err
	}
	ctx, actor, name := r.Context(), httpapi.ActorFrom(r.Context()), r.PathValue("name")
	if rbac.IsOrganizationRole(name) {
		return fault.New(fault.Invalid, "The role %s is built in and cannot be deleted.", name)
	}
	err = s.db.InTx(ctx, func(q *dbsqlc.Queries) error {
		old, err := q.LockOrganizationRole(ctx, dbsqlc.LockOrganizationRoleParams{OrganizationID: org.ID, Name: name})
		if err != nil {
			return lookup.Fault(err, rbac.OrganizationRole, "lock role")
		}
		if err := holdsAll(actor, org.ID, old.Powers); err != nil {
			return err
		}
		if err := unassign(ctx, q, org.ID, name); err != nil {
			return err
		}
		if err := q.DeleteOrganizationRole(ctx, dbsqlc.DeleteOrganizationRoleParams{
			OrganizationID: org.ID, Name: name,
		}); err != nil {
			return err
		}
		return audit.Record(ctx, q, audit.OfCustomRole(old, dbsqlc.OrganizationRole{}))
	})
	if err != nil {
		return fmt.Errorf("delete role: %w", err)
	}
	s.log.Info("role deleted", "user", actor.Username, "organization", org.Name, "role", name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// unassign takes a role from all members who have it.
func unassign(ctx context.Context, q *dbsqlc.Queries, org uuid.UUID, role string) error {
	rows, err := q.ListMembersWithRole(ctx, dbsqlc.ListMembersWithRoleParams{OrganizationID: org, Role: role})
	if err != nil {
		return err
	}
	for _, row := range rows {
		before := row.OrganizationMember
		roles := slices.DeleteFunc(slices.Clone(before.Roles), func(r string) bool { return r == role })
		after, err := q.UpdateOrganizationMemberRoles(ctx, dbsqlc.UpdateOrganizationMemberRolesParams{
			OrganizationID: org, UserID: row.User.ID, Roles: roles,
		})
		if err != nil {
			return err
		}
		e := audit.OfMember(row.User, before, after)
		e.Action = audit.Write // the route declares what it does to the role
		if err := audit.Record(ctx, q, e); err != nil {
			return err
		}
	}
	return nil
}

// maxPermissions bounds the permissions of one request.
const maxPermissions = 500

// powersOf returns the powers that permissions mean, or what is wrong with them.
func powersOf(permissions []sdk.Permission) (powers []rbac.Power, problem string) {
	if len(permissions) > maxPermissions {
		return nil, fmt.Sprintf("must be at most %d", maxPermissions)
	}
	powers = []rbac.Power{}
	for _, p := range permissions {
		if p.Negate {
			return nil, "cannot be negated: a role only adds permissions"
		}
		actions, ok := words[p.ResourceType]
		if !ok {
			return nil, fmt.Sprintf("has an unknown resource type %q", p.ResourceType)
		}
		found := false
		for action, means := range actions {
			if (p.Action == action || p.Action == "*") && !private(means) {
				found = true
				powers = append(powers, means...)
			}
		}
		switch {
		case private(actions[p.Action]):
			return nil, fmt.Sprintf("cannot have %s of %s: no role reaches into other users' workspaces, or shares them", p.Action, p.ResourceType)
		case !found:
			return nil, fmt.Sprintf("has an unknown action %q of %s", p.Action, p.ResourceType)
		}
	}
	slices.SortFunc(powers, func(a, b rbac.Power) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Action, b.Action))
	})
	return slices.Compact(powers), ""
}

// permissionsOf returns the clients' words for powers.
func permissionsOf(powers []rbac.Power) sdk.List[sdk.Permission] {
	out := sdk.List[sdk.Permission]{}
	for resource, actions := range words {
		for action, means := range actions {
			if !private(means) &&
				!slices.ContainsFunc(means, func(p rbac.Power) bool { return !slices.Contains(powers, p) }) {
				out = append(out, sdk.Permission{ResourceType: resource, Action: action})
			}
		}
	}
	slices.SortFunc(out, func(a, b sdk.Permission) int {
		return cmp.Or(cmp.Compare(a.ResourceType, b.ResourceType), cmp.Compare(a.Action, b.Action))
	})
	return out
}
