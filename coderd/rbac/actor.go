package rbac

import (
	"slices"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
)

// The stored roles of the deployment. Every user is also a member.
const (
	RoleOwner         = "owner"
	RoleUserAdmin     = "user-admin"
	RoleTemplateAdmin = "template-admin"
	RoleAuditor       = "auditor"
)

// The stored roles in an organization, besides its custom ones. Every member also has the role organization-member.
const (
	RoleOrganizationAdmin         = "organization-admin"
	RoleOrganizationUserAdmin     = "organization-user-admin"
	RoleOrganizationTemplateAdmin = "organization-template-admin"
	RoleOrganizationAuditor       = "organization-auditor"
)

var (
	siteRoles = map[string]relation{
		RoleOwner: owner, RoleUserAdmin: userAdmin, RoleTemplateAdmin: templateAdmin, RoleAuditor: auditor,
	}
	// An organization's admin has the powers of its other roles.
	organizationRoles = map[string]relation{
		RoleOrganizationAdmin:         orgAdmin | orgUserAdmin | orgTemplateAdmin | orgAuditor,
		RoleOrganizationUserAdmin:     orgUserAdmin,
		RoleOrganizationTemplateAdmin: orgTemplateAdmin,
		RoleOrganizationAuditor:       orgAuditor,
	}
)

// IsSiteRole reports whether a role of the deployment can be granted; every user has "member", so it need not be.
func IsSiteRole(name string) bool { return siteRoles[name] != 0 }

// SiteRoles returns the names of the roles of the deployment, the most powerful first.
func SiteRoles() []string { return []string{RoleOwner, RoleUserAdmin, RoleTemplateAdmin, RoleAuditor} }

// Power is the right to do an action to every object of a kind in one organization. Custom roles consist of powers.
type Power struct {
	Action   Action   `json:"action"`
	Resource Resource `json:"resource"`
}

// Membership is what a user is in one organization.
type Membership struct {
	Organization uuid.UUID `json:"organization"`
	Roles        []string  `json:"roles"`  // stored roles, custom ones too
	Powers       []Power   `json:"powers"` // of the custom roles
}

// Actor is the user who acts. The zero value is not signed in, and may do nothing.
type Actor struct {
	UserID      uuid.UUID
	Username    string
	Roles       []string // stored roles of the deployment, without member
	Memberships []Membership
	Groups      []uuid.UUID // without the groups Everyone, of which every member of an organization is one
	KeyID       string      // public half of the token that was sent
	Scope       Scope       // what that token may do of what the user may do

	// FromWorkspace reports that the token was issued to a workspace. The workspace's template can read it, so it never
	// carries more than an administrator's of templates, no custom roles, and cannot create or change credentials.
	FromWorkspace bool

	ledger *Ledger // nil: nothing keeps what the actor's checks allow
}

// SignedIn reports whether the actor is a user.
func (a Actor) SignedIn() bool { return a.UserID != uuid.Nil }

// Organizations returns the organizations that the actor is a member of.
func (a Actor) Organizations() []uuid.UUID {
	a = a.Current()
	out := make([]uuid.UUID, len(a.Memberships))
	for i, m := range a.Memberships {
		out[i] = m.Organization
	}
	return out
}

// Principals returns the ids by which objects can be shared with the actor: the user's own, those of their groups, and
// those of their organizations, which are also the ids of the groups Everyone.
func (a Actor) Principals() []uuid.UUID {
	a = a.Current()
	return append(append([]uuid.UUID{a.UserID}, a.Groups...), a.Organizations()...)
}

// Equal reports whether two actors are the same user with the same rights.
func (a Actor) Equal(b Actor) bool {
	return a.UserID == b.UserID && a.FromWorkspace == b.FromWorkspace && a.Scope.Equal(b.Scope) &&
		slices.Equal(a.Roles, b.Roles) && slices.Equal(a.Groups, b.Groups) &&
		slices.EqualFunc(a.Memberships, b.Memberships, func(x, y Membership) bool {
			return x.Organization == y.Organization && slices.Equal(x.Roles, y.Roles) &&
				slices.Equal(x.Powers, y.Powers)
		})
}

// Within reports whether the same user, with the rights of now, has kept every role, power, membership and group of the
// actor.
func (a Actor) Within(now Actor) bool {
	held := func(m Membership) bool {
		return slices.ContainsFunc(now.Memberships, func(n Membership) bool {
			return n.Organization == m.Organization && contains(n.Roles, m.Roles) && contains(n.Powers, m.Powers)
		})
	}
	return a.UserID == now.UserID && contains(now.Roles, a.Roles) && contains(now.Groups, a.Groups) &&
		!slices.ContainsFunc(a.Memberships, func(m Membership) bool { return !held(m) })
}

// contains reports whether all has every one of some.
func contains[T comparable](all, some []T) bool {
	return !slices.ContainsFunc(some, func(x T) bool { return !slices.Contains(all, x) })
}

// May returns nil if the actor may do the action to the object. Otherwise it returns a fault: Unauthenticated for the
// zero Actor, NotFound if the actor must not know that the object exists, and Forbidden if the object is visible and
// only this action is refused.
func (a Actor) May(action Action, object Object) (err error) {
	a.decide(func(a Actor) bool {
		err = a.may(action, object)
		return err == nil
	})
	return err
}

func (a Actor) may(action Action, object Object) error {
	if !a.SignedIn() {
		return fault.New(fault.Unauthenticated, "You are not signed in.")
	}
	if a.allowed(action, object) {
		return nil
	}
	if !a.allowed(Read, object) {
		return NotFound(object.Resource)
	}
	if a.granted(action, object) {
		if lack, ok := a.outranked(action, object); ok {
			return fault.New(fault.Forbidden, "You cannot change the account of %s: it has powers that you do not have.", object.Account.Username).
				WithDetail("%s", lack)
		}
		return a.Scope.outOfScope(action, object.Resource)
	}
	return forbidden(action, object.Resource)
}

// MayCreate is May for an object that does not exist yet, in an organization that the actor sees: a refusal has nothing
// to hide.
func (a Actor) MayCreate(object Object) error {
	err := a.May(Create, object)
	if fault.CodeOf(err) != fault.NotFound {
		return err
	}
	if a.Current().granted(Create, object) {
		return a.Scope.outOfScope(Create, object.Resource)
	}
	return forbidden(Create, object.Resource)
}

// Covers reports whether the actor's token allows an action to an object, whatever the user may do.
func (a Actor) Covers(action Action, object Object) bool {
	return a.Scope.covers(a.UserID, action, object)
}

// InScope returns nil unless the actor's token lacks a scope that is finer than the table, such as "workspace:stop".
func (a Actor) InScope(scope string) error {
	if a.Scope.permits(scope) {
		return nil
	}
	return fault.New(fault.Forbidden, "This token lacks the scope %s.", scope).WithDetail("It has %s.", a.Scope)
}

// Sees reports whether the actor may read every object of the kind in an organization, regardless of owner and sharing.
// uuid.Nil means the objects of the deployment.
func (a Actor) Sees(resource Resource, organization uuid.UUID) bool {
	return a.SignedIn() && a.decide(func(a Actor) bool {
		return a.allowed(Read, Object{
			Resource: resource, Organization: organization,
		})
	})
}

// Only returns the ids of the only objects of a kind that the actor's token reaches, or nil if it is not limited to
// ids. Lists must leave out all others.
func (a Actor) Only(resource Resource) []uuid.UUID {
	if ids, limited := a.Scope.ids(resource); limited {
		return ids
	}
	return nil
}

// Extent describes the objects of a kind that an actor may read, for queries that list them: an object is in it if All
// is set, or if its organization is one of Organizations, or one of Member and the object is Owner's or shared with one
// of Principals. If Only is not nil, it must also have one of these ids.
type Extent struct {
	All           bool
	Organizations []uuid.UUID
	Owner         uuid.UUID
	Member        []uuid.UUID
	Principals    []string // ids, as the keys of a stored Sharing
	Only          []uuid.UUID
}

// Extent returns what the actor may read of a kind of object that belongs to organizations. It agrees with May.
func (a Actor) Extent(resource Resource) Extent {
	a = a.Current()
	e := Extent{Organizations: []uuid.UUID{}, Member: []uuid.UUID{}, Principals: []string{}}
	if !a.SignedIn() || !a.Scope.somewhere(Read, resource) {
		return e
	}
	e.Only = a.Only(resource)
	a.Scope = Scope{} // Only has its list
	e.Owner, e.All = a.UserID, a.Sees(resource, uuid.Nil)
	for _, m := range a.Memberships {
		if a.Sees(resource, m.Organization) {
			e.Organizations = append(e.Organizations, m.Organization)
		}
	}
	g := table[resource][Read]
	if g.to&(self|user) != 0 {
		e.Member = a.Organizations()
	}
	if g.to&user != 0 {
		for _, id := range a.Principals() {
			e.Principals = append(e.Principals, id.String())
		}
	}
	return e
}

// Reaches reports whether the actor owns the object, or it is shared with them. Roles do not count: no role lets an
// administrator into other users' workspaces.
func (a Actor) Reaches(object Object) bool {
	return a.SignedIn() &&
		a.decide(func(a Actor) bool { return a.ownership(object)|a.shared(object) != 0 && a.Scope.lists(object) })
}

// MemberOf reports whether the actor is a member of the organization.
func (a Actor) MemberOf(organization uuid.UUID) bool {
	return a.decide(func(a Actor) bool {
		return slices.ContainsFunc(a.Memberships, func(m Membership) bool { return m.Organization == organization })
	})
}

// allowed reports whether the user may do the action, and the token.
func (a Actor) allowed(action Action, object Object) bool {
	if _, ok := a.outranked(action, object); ok {
		return false
	}
	return a.granted(action, object) && a.Scope.covers(a.UserID, action, object)
}

// granted reports whether the table or a custom role allows the action.
func (a Actor) granted(action Action, object Object) bool {
	g, ok := table[object.Resource][action]
	if !ok || a.FromWorkspace && g.personal {
		return false
	}
	relations := a.ownership(object) | a.shared(object)
	if g.private {
		return relations&g.to != 0
	}
	relations |= a.site()
	for _, m := range a.Memberships {
		mine := m.Organization == object.Organization
		roles := m.relations(a.FromWorkspace)
		if roles&orgTemplateAdmin != 0 || !a.FromWorkspace && m.publishes() {
			relations |= orgPublisher
		}
		if mine {
			relations |= member | roles
		}
		if mine && !a.FromWorkspace && slices.Contains(m.Powers, Power{action, object.Resource}) {
			return true
		}
	}
	return relations&(g.to|owner) != 0
}

// allowedSomewhere reports whether the actor may do the action to some object of the kind.
func (a Actor) allowedSomewhere(action Action, resource Resource) bool {
	g, ok := table[resource][action]
	if !ok || a.FromWorkspace && g.personal || !a.Scope.somewhere(action, resource) {
		return false
	}
	relations := self | user | admin | a.site()
	for _, m := range a.Memberships {
		relations |= member | m.relations(a.FromWorkspace)
		if m.relations(a.FromWorkspace)&orgTemplateAdmin != 0 || !a.FromWorkspace && m.publishes() {
			relations |= orgPublisher
		}
		if !a.FromWorkspace && slices.Contains(m.Powers, Power{action, resource}) {
			return true
		}
	}
	return relations&(g.to|owner) != 0
}

// site returns the actor's roles in the deployment, as far as they count for the token.
func (a Actor) site() (roles relation) {
	for _, name := range a.Roles {
		roles |= siteRoles[name]
	}
	switch {
	case a.FromWorkspace && roles&(owner|templateAdmin) != 0:
		return templateAdmin
	case a.FromWorkspace:
		return 0
	}
	return roles
}

// relations returns the built-in roles of a membership.
func (m Membership) relations(fromWorkspace bool) (roles relation) {
	for _, name := range m.Roles {
		roles |= organizationRoles[name]
	}
	if fromWorkspace {
		roles &= orgTemplateAdmin
	}
	return roles
}

func (a Actor) ownership(object Object) relation {
	if object.Owner == a.UserID && (object.Organization == uuid.Nil || a.MemberOf(object.Organization)) {
		return self
	}
	return 0
}

// shared returns the highest level at which the object is shared with the actor. Sharing with a group of another
// organization than the object's grants nothing, because only members of the object's organization can be reached by
// it.
func (a Actor) shared(object Object) (level relation) {
	if len(object.Shared) == 0 || !a.MemberOf(object.Organization) {
		return 0
	}
	for _, id := range a.Principals() {
		switch object.Shared[id] {
		case LevelAdmin:
			return user | admin
		case LevelUse:
			level = user
		}
	}
	return level
}
