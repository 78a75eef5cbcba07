package rbac_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
)

var (
	self  = uuid.MustParse("11111111-1111-4111-8111-111111111111")
	other = uuid.MustParse("22222222-2222-4222-8222-222222222222")

	org      = uuid.MustParse("33333333-3333-4333-8333-333333333333")
	otherOrg = uuid.MustParse("44444444-4444-4444-8444-444444444444")
	group    = uuid.MustParse("55555555-5555-4555-8555-555555555555")

	nobody        = rbac.Actor{}
	member        = with(nil)
	templateAdmin = with([]string{rbac.RoleTemplateAdmin})
	owner         = with([]string{rbac.RoleOwner})
	ownerInside   = inside(owner)
	memberInside  = inside(member)
)

// with returns a member of org with roles of the deployment and of the organization.
func with(site []string, organization ...string) rbac.Actor {
	return rbac.Actor{UserID: self, Roles: site, Memberships: []rbac.Membership{{Organization: org, Roles: organization}}}
}

// inside returns the actor as the holder of a workspace's token.
func inside(a rbac.Actor) rbac.Actor {
	a.FromWorkspace = true
	return a
}

// everyone is how a template is shared with all members of org.
var everyone = rbac.Sharing{org: rbac.LevelUse}

// object returns an object of org, if its kind belongs to organizations, that is open to everyone, if it is a template.
func object(r rbac.Resource, owner uuid.UUID) rbac.Object {
	o := rbac.Of(r, owner)
	switch r {
	case rbac.User, rbac.APIKey, rbac.SSHKey, rbac.ExternalAuth, rbac.File, rbac.Deployment, rbac.Mesh:
	case rbac.Template, rbac.TemplateVersion:
		o = o.In(org).SharedWith(everyone)
	default:
		o = o.In(org)
	}
	return o
}

const (
	yes       = fault.Code("")
	invisible = fault.NotFound
	refused   = fault.Forbidden
	signIn    = fault.Unauthenticated
)

// mays are the answers to each kind of actor.
var mays = []struct {
	action   rbac.Action
	resource rbac.Resource
	whose    uuid.UUID

	nobody, member, templateAdmin, owner, ownerInside fault.Code
}{
	// A member and their own objects.
	{rbac.Read, rbac.User, self, signIn, yes, yes, yes, yes},
	{rbac.Update, rbac.User, self, signIn, yes, yes, yes, refused},
	{rbac.Manage, rbac.User, self, signIn, refused, refused, yes, refused}, // users cannot raise their own privileges
	{rbac.Delete, rbac.User, self, signIn, refused, refused, yes, refused},
	{rbac.Create, rbac.APIKey, self, signIn, yes, yes, yes, refused}, // a stolen workspace token cannot create another
	{rbac.Read, rbac.APIKey, self, signIn, yes, yes, yes, yes},
	{rbac.Delete, rbac.APIKey, self, signIn, yes, yes, yes, refused},
	{rbac.Update, rbac.SSHKey, self, signIn, yes, yes, yes, refused},
	{rbac.Read, rbac.ExternalAuth, self, signIn, yes, yes, yes, yes},
	{rbac.Update, rbac.ExternalAuth, self, signIn, yes, yes, yes, refused}, // a template cannot sign its owner in elsewhere
	{rbac.Delete, rbac.ExternalAuth, self, signIn, yes, yes, yes, refused},
	{rbac.Create, rbac.Workspace, self, signIn, yes, yes, yes, yes},
	{rbac.Connect, rbac.Workspace, self, signIn, yes, yes, yes, yes},
	{rbac.Connect, rbac.Agent, self, signIn, yes, yes, yes, yes},
	{rbac.Delete, rbac.Workspace, self, signIn, yes, yes, yes, yes},
	{rbac.Update, rbac.WorkspaceBuild, self, signIn, yes, yes, yes, yes},
	{rbac.Read, rbac.WorkspaceState, self, signIn, invisible, invisible, yes, invisible},
	{rbac.Connect, rbac.Mesh, self, signIn, yes, yes, yes, yes},

	// The attacker: a member, and another user's objects.
	{rbac.Read, rbac.User, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Update, rbac.User, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Manage, rbac.User, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.APIKey, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Create, rbac.APIKey, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.SSHKey, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.ExternalAuth, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Update, rbac.ExternalAuth, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.Workspace, other, signIn, invisible, yes, yes, yes},
	{rbac.Create, rbac.Workspace, other, signIn, invisible, refused, yes, refused},
	{rbac.Update, rbac.Workspace, other, signIn, invisible, refused, yes, refused},
	{rbac.Connect, rbac.Workspace, other, signIn, invisible, refused, refused, refused},
	{rbac.Connect, rbac.Agent, other, signIn, invisible, refused, refused, refused},
	{rbac.Read, rbac.WorkspaceBuild, other, signIn, invisible, yes, yes, yes},
	{rbac.Update, rbac.WorkspaceBuild, other, signIn, invisible, refused, yes, refused},
	{rbac.Read, rbac.WorkspaceState, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Update, rbac.WorkspaceState, other, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.OrganizationMember, other, signIn, yes, yes, yes, yes},

	// The deployment's objects.
	{rbac.Read, rbac.Template, uuid.Nil, signIn, yes, yes, yes, yes},
	{rbac.Create, rbac.Template, uuid.Nil, signIn, refused, yes, yes, yes},
	{rbac.Update, rbac.TemplateVersion, uuid.Nil, signIn, refused, yes, yes, yes},
	{rbac.Delete, rbac.Template, uuid.Nil, signIn, refused, yes, yes, yes},
	{rbac.Read, rbac.File, other, signIn, invisible, yes, yes, yes},
	{rbac.Create, rbac.File, self, signIn, refused, yes, yes, yes},
	{rbac.Read, rbac.ProvisionerDaemon, uuid.Nil, signIn, invisible, yes, yes, yes},
	{rbac.Read, rbac.ProvisionerDaemon, self, signIn, yes, yes, yes, yes},
	{rbac.Create, rbac.ProvisionerDaemon, uuid.Nil, signIn, invisible, yes, yes, refused},
	{rbac.Create, rbac.ProvisionerDaemon, self, signIn, yes, yes, yes, refused},
	{rbac.Create, rbac.ProvisionerKey, uuid.Nil, signIn, invisible, yes, yes, refused},
	{rbac.Update, rbac.ProvisionerJob, other, signIn, invisible, yes, yes, yes},
	{rbac.Read, rbac.Deployment, uuid.Nil, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.Mesh, uuid.Nil, signIn, invisible, invisible, yes, invisible},
	{rbac.Read, rbac.Organization, uuid.Nil, signIn, yes, yes, yes, yes},

	// No actor may do what the table does not list.
	{rbac.Connect, rbac.Template, uuid.Nil, signIn, refused, refused, refused, refused},
	{rbac.Read, rbac.Resource("unknown"), uuid.Nil, signIn, invisible, invisible, invisible, invisible},
}

// TestMay checks the permission table as seen from outside: actor, action, owner and answer. The code "" means allowed.
func TestMay(t *testing.T) {
	t.Parallel()
	for _, row := range mays {
		for _, who := range []struct {
			name  string
			actor rbac.Actor
			want  fault.Code
		}{
			{"nobody", nobody, row.nobody}, {"member", member, row.member}, {"template admin", templateAdmin, row.templateAdmin},
			{"owner", owner, row.owner}, {"owner's workspace", ownerInside, row.ownerInside},
		} {
			if got := fault.CodeOf(who.actor.May(row.action, object(row.resource, row.whose))); got != who.want {
				t.Errorf("%s: %s %s of %s: got %q, want %q", who.name, row.action, row.resource, row.whose, got, who.want)
			}
		}
	}
}

// TestNobodyOwnsNothing checks that the zero actor does not own the deployment's objects, although both ids are zero.
func TestNobodyOwnsNothing(t *testing.T) {
	t.Parallel()
	for _, a := range []rbac.Actor{{}, {Roles: []string{rbac.RoleOwner}}, {FromWorkspace: true}} {
		if err := a.May(rbac.Read, rbac.Of(rbac.Workspace, uuid.Nil)); fault.CodeOf(err) != fault.Unauthenticated {
			t.Errorf("%+v may read a workspace without owner: %v", a, err)
		}
		if a.Sees(rbac.Template, uuid.Nil) {
			t.Errorf("%+v sees templates", a)
		}
	}
	if err := member.May(rbac.Read, rbac.Of(rbac.Workspace, uuid.Nil)); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a member and a workspace without owner: %v", err)
	}
}

// TestRefusalsDoNotTell checks that missing objects and invisible ones get the same answer.
func TestRefusalsDoNotTell(t *testing.T) {
	t.Parallel()
	got, want := member.May(rbac.Delete, rbac.Of(rbac.Workspace, other)), rbac.NotFound(rbac.Workspace)
	if got.Error() != want.Error() {
		t.Errorf("refusal: got %q, want %q", got, want)
	}
}

func TestPermission(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		perm  rbac.Permission
		actor rbac.Actor
		want  fault.Code
	}{
		{rbac.Public, nobody, ""},
		{rbac.SignedIn, nobody, fault.Unauthenticated},
		{rbac.SignedIn, member, ""},
		{rbac.Needs(rbac.Create, rbac.Template), nobody, fault.Unauthenticated},
		{rbac.Needs(rbac.Create, rbac.Template), member, fault.Forbidden},
		{rbac.Needs(rbac.Create, rbac.Template), templateAdmin, ""},
		{rbac.Needs(rbac.Read, rbac.User), member, ""}, // some user: themselves
		{rbac.Needs(rbac.Create, rbac.APIKey), memberInside, fault.Forbidden},
		{rbac.Needs(rbac.Manage, rbac.User), templateAdmin, fault.Forbidden},
		{rbac.Needs(rbac.Create, rbac.Template), with(nil, rbac.RoleOrganizationTemplateAdmin), ""},
		{rbac.Needs(rbac.Create, rbac.Template), with(nil, rbac.RoleOrganizationUserAdmin), fault.Forbidden},
		{rbac.Needs(rbac.Delete, rbac.ProvisionerKey), withPower(rbac.Delete, rbac.ProvisionerKey), ""},
		{rbac.Needs(rbac.Create, rbac.ProvisionerKey), withPower(rbac.Delete, rbac.ProvisionerKey), fault.Forbidden},
		{rbac.Needs(rbac.Delete, rbac.ProvisionerKey), inside(withPower(rbac.Delete, rbac.ProvisionerKey)), fault.Forbidden},
		{rbac.Permission{}, owner, fault.Forbidden},
	} {
		if got := fault.CodeOf(row.perm.Check(row.actor)); got != row.want {
			t.Errorf("%s for %+v: got %q, want %q", row.perm, row.actor, got, row.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("Needs accepted an action that the table does not have")
		}
	}()
	rbac.Needs(rbac.Connect, rbac.Template)
}

// withPower is a member of org with a custom role that has one power.
func withPower(action rbac.Action, resource rbac.Resource) rbac.Actor {
	return rbac.Actor{UserID: self, Memberships: []rbac.Membership{
		{Organization: org, Powers: []rbac.Power{{Action: action, Resource: resource}}},
	}}
}

// TestEqualActors checks that a session notices each change of its user's rights.
func TestEqualActors(t *testing.T) {
	t.Parallel()
	scope := func(names ...string) rbac.Scope {
		s, err := rbac.NewScope(names, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	actor := func() rbac.Actor {
		a := withPower(rbac.Delete, rbac.Workspace)
		a.Roles, a.Groups, a.Scope = []string{rbac.RoleAuditor}, []uuid.UUID{other}, scope("workspace:read")
		a.Memberships[0].Roles = []string{"cleaner"}
		return a
	}
	if !actor().Equal(actor()) {
		t.Error("an actor differs from the same one")
	}
	for name, change := range map[string]func(*rbac.Actor){
		"user":         func(a *rbac.Actor) { a.UserID = other },
		"token's kind": func(a *rbac.Actor) { a.FromWorkspace = true },
		"scope":        func(a *rbac.Actor) { a.Scope = scope("template:read") },
		"role":         func(a *rbac.Actor) { a.Roles = nil },
		"group":        func(a *rbac.Actor) { a.Groups = []uuid.UUID{self} },
		"membership":   func(a *rbac.Actor) { a.Memberships = nil },
		"organization": func(a *rbac.Actor) { a.Memberships[0].Organization = otherOrg },
		"custom role":  func(a *rbac.Actor) { a.Memberships[0].Roles = nil },
		"power":        func(a *rbac.Actor) { a.Memberships[0].Powers[0].Action = rbac.Read },
	} {
		changed := actor()
		change(&changed)
		if actor().Equal(changed) || changed.Equal(actor()) {
			t.Errorf("another %s is not noticed", name)
		}
	}
}

// TestRoles checks what each role adds to a member, in its own organization and in another one.
func TestRoles(t *testing.T) {
	t.Parallel()
	type cell struct {
		action   rbac.Action
		resource rbac.Resource
	}
	organization := []cell{
		{rbac.Update, rbac.Organization}, {rbac.Create, rbac.OrganizationMember}, {rbac.Create, rbac.OrganizationRole}, {rbac.Update, rbac.Group},
		{rbac.Update, rbac.Template}, {rbac.Share, rbac.Template}, {rbac.Create, rbac.ProvisionerKey}, {rbac.Read, rbac.Workspace}, {rbac.Delete, rbac.Workspace},
		{rbac.Connect, rbac.Workspace}, {rbac.Read, rbac.WorkspaceState},
	}
	site := []cell{{rbac.Read, rbac.User}, {rbac.Manage, rbac.User}, {rbac.Create, rbac.User}, {rbac.Create, rbac.APIKey}, {rbac.Update, rbac.Deployment}, {rbac.Create, rbac.Organization}}
	all := append(append([]cell{}, organization...), site...)
	for _, row := range []struct {
		name  string
		actor rbac.Actor
		in    string // allowed in org, as indexes of all
		out   string // allowed in another organization
	}{
		{"member", with(nil), "", ""},
		{"owner", with([]string{rbac.RoleOwner}), "012345678abcdefg", "012345678abcdefg"},
		{"user-admin", with([]string{rbac.RoleUserAdmin}), "13bcd", "13bcd"},
		{"template-admin", with([]string{rbac.RoleTemplateAdmin}), "4567", "4567"},
		{"auditor", with([]string{rbac.RoleAuditor}), "b", "b"},
		{"organization-admin", with(nil, rbac.RoleOrganizationAdmin), "012345678", ""},
		{"organization-user-admin", with(nil, rbac.RoleOrganizationUserAdmin), "13", ""},
		{"organization-template-admin", with(nil, rbac.RoleOrganizationTemplateAdmin), "4567", ""},
		{"organization-auditor", with(nil, rbac.RoleOrganizationAuditor), "", ""},
		{"custom role", withPower(rbac.Delete, rbac.Workspace), "8", ""},
		{"organization-admin's workspace", inside(with(nil, rbac.RoleOrganizationAdmin)), "47", ""},
	} {
		for _, where := range []struct {
			id   uuid.UUID
			want string
		}{{org, row.in}, {otherOrg, row.out}} {
			got := ""
			for i, c := range all {
				o := rbac.Of(c.resource, other)
				if i < len(organization) {
					o = o.In(where.id)
				}
				if row.actor.May(c.action, o) == nil {
					got += string("0123456789abcdefg"[i])
				}
			}
			if got != where.want {
				t.Errorf("%s in %s: got %s, want %s", row.name, where.id, got, where.want)
			}
		}
	}
}

// TestAccounts checks that accounts are changed only by those who hold every power of their roles.
func TestAccounts(t *testing.T) {
	t.Parallel()
	const admin, org1 = rbac.RoleUserAdmin, rbac.RoleOrganizationUserAdmin
	account := func(of rbac.Actor) rbac.Object {
		of.UserID, of.Username = other, "eve"
		o := rbac.Of(rbac.User, other)
		o.Account = &of
		return o
	}
	limited := owner
	limited.Scope, _ = rbac.NewScope([]string{"user:*"}, nil)
	custom := func(p rbac.Power) rbac.Actor {
		return rbac.Actor{Memberships: []rbac.Membership{{Organization: otherOrg, Roles: []string{"custom"}, Powers: []rbac.Power{p}}}}
	}
	for _, row := range []struct {
		name      string
		by, of    rbac.Actor
		permitted bool
	}{
		{"user admin, owner", with([]string{admin}), with([]string{rbac.RoleOwner}), false},
		{"user admin, template admin", with([]string{admin}), with([]string{rbac.RoleTemplateAdmin}), false},
		{"user admin, auditor", with([]string{admin}), with([]string{rbac.RoleAuditor}), false},
		{"user admin, user admin", with([]string{admin}), with([]string{admin}), true},
		{"user admin, member", with([]string{admin}), with(nil), true},
		{"user admin, organization admin", with([]string{admin}), with(nil, rbac.RoleOrganizationAdmin), false},
		{"user admin, organization auditor", with([]string{admin}), with(nil, rbac.RoleOrganizationAuditor), false},
		{"user admin, organization user admin", with([]string{admin}), with(nil, org1), true},
		{"user admin, custom role", with([]string{admin}), custom(rbac.Power{Action: rbac.Create, Resource: rbac.Template}), false},
		{"user admin, weak custom role", with([]string{admin}), custom(rbac.Power{Action: rbac.Create, Resource: rbac.Group}), true},
		{"user admin and auditor, auditor", with([]string{admin, rbac.RoleAuditor}), with([]string{rbac.RoleAuditor}), true},
		{"owner, owner", with([]string{rbac.RoleOwner}), with([]string{rbac.RoleOwner}), true},
		{"an owner's token for accounts, owner", limited, with([]string{rbac.RoleOwner}), false},
		{"an owner's token for accounts, member", limited, with(nil), true},
	} {
		for _, action := range []rbac.Action{rbac.Update, rbac.Manage, rbac.Delete} {
			if err := row.by.May(action, account(row.of)); (err == nil) != row.permitted {
				t.Errorf("%s: %s: %v, want permitted: %t", row.name, action, err, row.permitted)
			}
		}
		if row.by.UserID != limited.UserID {
			continue
		}
		if err := row.by.May(rbac.Read, account(row.of)); err != nil && !row.by.Scope.Limited() {
			t.Errorf("%s: read: %v", row.name, err)
		}
	}
	own := account(with([]string{rbac.RoleOwner}))
	own.Owner, own.Account.UserID = self, self
	if err := with([]string{rbac.RoleOwner}).May(rbac.Update, own); err != nil {
		t.Error(err)
	}
}

// TestSharing checks the levels, through users, groups and Everyone, and that outsiders of the organization get nothing.
func TestSharing(t *testing.T) {
	t.Parallel()
	inGroup := with(nil)
	inGroup.Groups = []uuid.UUID{group}
	outsider := rbac.Actor{UserID: self, Groups: []uuid.UUID{group}, Memberships: []rbac.Membership{{Organization: otherOrg}}}
	for _, row := range []struct {
		name                           string
		actor                          rbac.Actor
		shared                         rbac.Sharing
		read, connect, update, destroy bool
	}{
		{"nothing", member, nil, false, false, false, false},
		{"user", member, rbac.Sharing{self: rbac.LevelUse}, true, true, false, false},
		{"administrator", member, rbac.Sharing{self: rbac.LevelAdmin}, true, true, true, false},
		{"another user", member, rbac.Sharing{other: rbac.LevelAdmin}, false, false, false, false},
		{"group", inGroup, rbac.Sharing{group: rbac.LevelUse}, true, true, false, false},
		{"group of others", member, rbac.Sharing{group: rbac.LevelUse}, false, false, false, false},
		{"the higher level", inGroup, rbac.Sharing{self: rbac.LevelUse, group: rbac.LevelAdmin}, true, true, true, false},
		{"everyone", member, everyone, true, true, false, false},
		{"an outsider, directly", outsider, rbac.Sharing{self: rbac.LevelAdmin}, false, false, false, false},
		{"an outsider, by group", outsider, rbac.Sharing{group: rbac.LevelAdmin}, false, false, false, false},
		{"an outsider's organization", outsider, rbac.Sharing{otherOrg: rbac.LevelAdmin}, false, false, false, false},
		{"an unknown level", member, rbac.Sharing{self: "all"}, false, false, false, false},
	} {
		workspace := rbac.Of(rbac.Workspace, other).In(org).SharedWith(row.shared)
		for action, want := range map[rbac.Action]bool{rbac.Read: row.read, rbac.Connect: row.connect, rbac.Update: row.update, rbac.Delete: row.destroy} {
			if got := row.actor.May(action, workspace) == nil; got != want {
				t.Errorf("%s: %s: got %v, want %v", row.name, action, got, want)
			}
		}
		if got := row.actor.Reaches(workspace); got != row.connect {
			t.Errorf("%s: reaches: got %v, want %v", row.name, got, row.connect)
		}
		// A list shows what May allows.
		e := row.actor.Extent(rbac.Workspace)
		listed := e.All || slices.Contains(e.Organizations, org) || slices.Contains(e.Member, org) && slices.ContainsFunc(e.Principals, func(id string) bool {
			return row.shared[uuid.MustParse(id)] != ""
		})
		if known := row.name != "an unknown level"; known && listed != row.read {
			t.Errorf("%s: listed: got %v, want %v", row.name, listed, row.read)
		}
	}
	if owner.Reaches(rbac.Of(rbac.Workspace, other).In(org)) {
		t.Error("the role owner reaches other users' workspaces")
	}
	left := rbac.Actor{UserID: self}
	if left.May(rbac.Read, rbac.Of(rbac.Workspace, self).In(org)) == nil || left.Reaches(rbac.Of(rbac.Workspace, self).In(org)) {
		t.Error("a user who left the organization still has the workspaces there")
	}
}

// TestNoRoleGivesAccess: an actor with all roles and all powers at once, who neither owns a workspace nor has a share of it, does nothing private to it.
func TestNoRoleGivesAccess(t *testing.T) {
	t.Parallel()
	var powers []rbac.Power
	for _, row := range rbac.Rows() {
		powers = append(powers, row.Power)
	}
	all := rbac.Actor{UserID: self, Roles: rbac.SiteRoles(), Groups: []uuid.UUID{group}, Memberships: []rbac.Membership{
		{Organization: org, Roles: rbac.OrganizationRoles(), Powers: powers}, {Organization: otherOrg, Roles: rbac.OrganizationRoles(), Powers: powers},
	}}
	for _, shared := range []rbac.Sharing{nil, {other: rbac.LevelAdmin}} {
		for _, p := range powers {
			err := all.May(p.Action, rbac.Of(p.Resource, other).In(org).SharedWith(shared))
			if (err != nil) != p.Private() {
				t.Errorf("%s %s with all roles, shared %v: %v", p.Action, p.Resource, shared, err)
			}
		}
	}
	for _, action := range []rbac.Action{rbac.Connect, rbac.OpenApp, rbac.Share} {
		if !(rbac.Power{Action: action, Resource: rbac.Workspace}).Private() {
			t.Errorf("%s is not private", action)
		}
	}
}

// TestSharingWithin tries all pairs of small sharings: one is within another if no user has a higher level in it.
func TestSharingWithin(t *testing.T) {
	t.Parallel()
	levels := []rbac.Level{"", rbac.LevelUse, rbac.LevelAdmin}
	for n := range 81 {
		inner, outer, want := rbac.Sharing{}, rbac.Sharing{}, true
		for i, id := range []uuid.UUID{self, other} {
			a, b := n/[]int{1, 9}[i]%3, n/[]int{3, 27}[i]%3
			if a > 0 {
				inner[id] = levels[a]
			}
			if b > 0 {
				outer[id] = levels[b]
			}
			want = want && a <= b
		}
		if got := inner.Within(outer); got != want {
			t.Errorf("%v within %v: got %t, want %t", inner, outer, got, want)
		}
	}
}

// TestFormerPowers checks that custom roles of earlier versions, which could share workspaces, can withdraw sharing now.
func TestFormerPowers(t *testing.T) {
	t.Parallel()
	var got []rbac.Power
	if err := json.Unmarshal([]byte(`[{"action":"share","resource":"workspace"},{"action":"share","resource":"template"}]`), &got); err != nil {
		t.Fatal(err)
	}
	want := []rbac.Power{{Action: rbac.Withdraw, Resource: rbac.Workspace}, {Action: rbac.Share, Resource: rbac.Template}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
