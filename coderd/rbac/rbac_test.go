package rbac_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/coderd/rbac"
	"github.com/codermesh/codermesh/internal/fault"
)

var (
	self  = uuid.MustParse("11111111-1111-4111-8111-111111111111")
	other = uuid.MustParse("22222222-2222-4222-8222-222222222222")

	nobody        = rbac.Actor{}
	member        = rbac.Actor{UserID: self}
	templateAdmin = rbac.Actor{UserID: self, Roles: []string{rbac.RoleTemplateAdmin}}
	owner         = rbac.Actor{UserID: self, Roles: []string{rbac.RoleOwner}}
	ownerInside   = rbac.Actor{UserID: self, Roles: []string{rbac.RoleOwner}, FromWorkspace: true}
	memberInside  = rbac.Actor{UserID: self, FromWorkspace: true}
)

// TestMay checks the permission table as seen from outside: actor, action, owner and answer. The code "" means allowed.
func TestMay(t *testing.T) {
	t.Parallel()
	const (
		yes       = fault.Code("")
		invisible = fault.NotFound
		refused   = fault.Forbidden
		signIn    = fault.Unauthenticated
	)
	for _, row := range []struct {
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
		{rbac.Connect, rbac.Workspace, other, signIn, invisible, refused, yes, refused},
		{rbac.Connect, rbac.Agent, other, signIn, invisible, refused, yes, refused},
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
		{rbac.Create, rbac.File, self, signIn, invisible, yes, yes, yes},
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
	} {
		for _, who := range []struct {
			name  string
			actor rbac.Actor
			want  fault.Code
		}{
			{"nobody", nobody, row.nobody}, {"member", member, row.member}, {"template admin", templateAdmin, row.templateAdmin},
			{"owner", owner, row.owner}, {"owner's workspace", ownerInside, row.ownerInside},
		} {
			if got := fault.CodeOf(who.actor.May(row.action, rbac.Of(row.resource, row.whose))); got != who.want {
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
		if a.Sees(rbac.Template) {
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
