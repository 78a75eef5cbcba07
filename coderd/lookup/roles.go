package lookup

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/nearest"
)

// MayGive returns a fault unless all roles exist in an organization, and the actor may give them. The custom ones stay
// as they are until the transaction ends. A fault for an unknown role names the field of the request that has it.
func MayGive(
	ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, org uuid.UUID, roles []string, field string,
) error {
	custom, err := q.HoldOrganizationRoles(ctx, dbsqlc.HoldOrganizationRolesParams{OrganizationID: org, Names: roles})
	if err != nil {
		return fmt.Errorf("read custom roles: %w", err)
	}
	for _, role := range roles {
		powers := rbac.RolePowers(role)
		if !rbac.IsOrganizationRole(role) {
			i := slices.IndexFunc(custom, func(c dbsqlc.OrganizationRole) bool { return c.Name == role })
			if i < 0 {
				f := fault.New(fault.Invalid, "The role %.64q does not exist in this organization.", role)
				if near := nearest.To(role, rbac.OrganizationRoles()); near != "" {
					f = f.WithDetail("Did you mean %s?", near)
				}
				return f.WithField(field, "must have built-in or custom roles of the organization")
			}
			powers = custom[i].Powers
		}
		if err := actor.MayGive(role, powers, org); err != nil {
			return err
		}
	}
	return nil
}

// MayFill returns a fault unless the actor may change every template that the members of groups administer: an actor
// who decides about the members gives that power. Nil means all groups of the organization.
func MayFill(ctx context.Context, q *dbsqlc.Queries, actor rbac.Actor, org uuid.UUID, groups []uuid.UUID) error {
	rows, err := q.ListAdministeredTemplates(ctx, dbsqlc.ListAdministeredTemplatesParams{
		OrganizationID: org, Groups: groups,
	})
	if err != nil {
		return fmt.Errorf("list the templates of groups: %w", err)
	}
	for _, row := range rows {
		o := rbac.Of(rbac.Template, uuid.Nil).In(row.OrganizationID).SharedWith(row.Sharing).WithID(row.ID)
		if actor.May(rbac.Update, o) != nil {
			return fault.New(fault.Forbidden, "You cannot add members to the group %s: it has powers that you do not have.", row.GroupName).
				WithDetail("Its members administer the template %s, which you cannot change.", row.Name)
		}
	}
	return nil
}
