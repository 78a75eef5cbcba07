package rbac

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/google/uuid"
)

// OrganizationRoles returns the names of the built-in roles that can be granted in an organization.
func OrganizationRoles() []string {
	return []string{RoleOrganizationAdmin, RoleOrganizationAuditor, RoleOrganizationTemplateAdmin, RoleOrganizationUserAdmin}
}

// IsOrganizationRole reports whether a built-in role can be granted in an organization.
func IsOrganizationRole(name string) bool { return organizationRoles[name] != 0 }

// RolePowers returns what a built-in role of an organization adds to being a member of it; nil for an unknown role.
func RolePowers(role string) []Power {
	return powersOf(func(g grant) bool { return g.to&organizationRoles[role] != 0 })
}

// SitePowers returns what a role of the deployment adds to being a user; nil for an unknown role.
func SitePowers(role string) []Power {
	return powersOf(func(g grant) bool {
		return g.to&siteRoles[role] != 0 || role == RoleOwner && !g.private
	})
}

func powersOf(has func(grant) bool) []Power {
	var out []Power
	for resource, actions := range table {
		for action, g := range actions {
			if has(g) {
				out = append(out, Power{Action: action, Resource: resource})
			}
		}
	}
	slices.SortFunc(out, Power.compare)
	return out
}

// Private reports whether the power is beyond every role: only ownership and sharing give it.
func (p Power) Private() bool { return table[p.Resource][p.Action].private }

// UnmarshalJSON reads a stored power. Custom roles of earlier versions could share all workspaces. No role can now:
// what such a role keeps is the right to withdraw sharing.
func (p *Power) UnmarshalJSON(data []byte) error {
	type stored Power
	if err := json.Unmarshal(data, (*stored)(p)); err != nil {
		return err
	}
	if *p == (Power{Share, Workspace}) {
		p.Action = Withdraw
	}
	return nil
}

func (p Power) compare(q Power) int {
	return cmp.Or(cmp.Compare(p.Resource, q.Resource), cmp.Compare(p.Action, q.Action))
}

// Holds reports whether the actor may do the action to every object of the kind in an organization. Who grants a role
// must hold all its powers.
func (a Actor) Holds(p Power, organization uuid.UUID) bool {
	return a.SignedIn() && a.decide(func(a Actor) bool {
		return a.allowed(p.Action, Object{Resource: p.Resource, Organization: organization})
	})
}

// Somewhere reports whether the actor may do the action to every object of the kind in at least one organization.
func (a Actor) Somewhere(p Power) bool {
	return a.decide(func(a Actor) bool {
		return a.Holds(p, uuid.Nil) ||
			slices.ContainsFunc(a.Memberships, func(m Membership) bool { return a.Holds(p, m.Organization) })
	})
}

// publishes reports whether custom roles let the member publish templates, for which they must upload files.
func (m Membership) publishes() bool {
	return slices.ContainsFunc(m.Powers, func(p Power) bool {
		return p == Power{Create, Template} || p == Power{Create, TemplateVersion}
	})
}

// The names of the relations in a Row that are no roles.
const (
	RelationSelf   = "the object's owner"
	RelationMember = "organization-member"
	RelationUse    = "shared: use"
	RelationAdmin  = "shared: admin"
)

var relationNames = []struct {
	relation
	name string
}{
	{owner, RoleOwner},
	{userAdmin, RoleUserAdmin},
	{templateAdmin, RoleTemplateAdmin},
	{auditor, RoleAuditor},
	{orgAdmin, RoleOrganizationAdmin},
	{orgUserAdmin, RoleOrganizationUserAdmin},
	{orgTemplateAdmin, RoleOrganizationTemplateAdmin},
	{orgAuditor, RoleOrganizationAuditor},
	{member, RelationMember},
	{self, RelationSelf},
	{user, RelationUse},
	{admin, RelationAdmin},
}

// Relations returns the names of all relations that a Row can contain: roles first.
func Relations() []string {
	out := make([]string, len(relationNames))
	for i, r := range relationNames {
		out[i] = r.name
	}
	return out
}

// Row is one row of the permission table, for documentation and tests.
type Row struct {
	Power
	Relations []string // each suffices
	Personal  bool     // a workspace's token never suffices
}

// Rows returns the permission table, by resource and action.
func Rows() []Row {
	var out []Row
	for _, p := range powersOf(func(grant) bool { return true }) {
		g := table[p.Resource][p.Action]
		to := g.to
		if !g.private {
			to |= owner
		}
		if to&orgPublisher != 0 {
			to |= organizationRoles[RoleOrganizationTemplateAdmin]
		}
		if to&organizationRoles[RoleOrganizationAdmin] != 0 {
			to |= orgAdmin
		}
		row := Row{Power: p, Personal: g.personal}
		for _, r := range relationNames {
			if to&r.relation != 0 {
				row.Relations = append(row.Relations, r.name)
			}
		}
		out = append(out, row)
	}
	return out
}
