package coderd_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// ofTheUser are the kinds of things that a session opens for its user, whatever is shared with them.
var ofTheUser = map[string]bool{"event stream": true, "mesh connection": true, "provisioner": true}

// without fails unless everything that reached the workspace has ended, and nothing new reaches it.
func (o *opened) without(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), coderdtest.Patience)
	defer cancel()
	for kind, ended := range o.ends {
		if ofTheUser[kind] {
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			t.Errorf("%s outlived the sharing", kind)
		}
	}
	o.tunnel.SetReadDeadline(time.Now().Add(coderdtest.Patience))
	if _, err := io.Copy(io.Discard, o.tunnel); isTimeout(err) {
		t.Errorf("the tunnel outlived the sharing")
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second) // nothing answers
	defer cancel()
	if o.dial(short) == nil {
		t.Errorf("a new connection through the mesh reached the workspace")
	}
	for kind, v := range o.apps {
		if v.reaches(t) {
			t.Errorf("%s: a new request reached the app", kind)
		}
	}
}

// TestWhatSharingOpenedEndsWithIt: a workspace is shared, each user with whom it is shared opens one of each kind, and the sharing is
// withdrawn from one of them in each possible way. The owner and the other user go on.
func TestWhatSharingOpenedEndsWithIt(t *testing.T) {
	s := coderdtest.Start(t, func(o *coderd.Options) { o.WildcardHost = appHosts })
	template := s.Template("process", nil).ID
	for name, c := range map[string]struct {
		byGroup bool
		end     func(p *person, guest, group uuid.UUID) error
	}{
		"user removed": {false, func(p *person, guest, _ uuid.UUID) error {
			return s.As(p.name).UpdateWorkspaceACL(t.Context(), p.workspace, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{guest.String(): ""}})
		}},
		"group removed": {true, func(p *person, _, group uuid.UUID) error {
			return s.As(p.name).UpdateWorkspaceACL(t.Context(), p.workspace, sdk.UpdateWorkspaceACLRequest{GroupRoles: map[string]string{group.String(): ""}})
		}},
		"left the group": {true, func(_ *person, guest, group uuid.UUID) error {
			_, err := s.As("olga").PatchGroup(t.Context(), group, sdk.PatchGroupRequest{RemoveUsers: []string{guest.String()}})
			return err
		}},
		"group deleted": {true, func(_ *person, _, group uuid.UUID) error { return s.As("olga").DeleteGroup(t.Context(), group) }},
		"left the organization": {false, func(_ *person, guest, _ uuid.UUID) error {
			s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, guest)
			return nil
		}},
		"expelled": {false, func(_ *person, guest, _ uuid.UUID) error {
			return s.As("olga").RemoveOrganizationMember(t.Context(), sdk.DefaultOrganization, guest.String())
		}},
		"expelled with a group": {true, func(_ *person, guest, _ uuid.UUID) error {
			return s.As("olga").RemoveOrganizationMember(t.Context(), sdk.DefaultOrganization, guest.String())
		}},
		"by hand": {false, func(p *person, guest, _ uuid.UUID) error {
			s.Exec(`UPDATE workspaces SET sharing = sharing - $2::text WHERE id = $1`, p.workspace, guest)
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			short := strings.ReplaceAll(name, " ", "-")
			p := newPerson(t, s, short, template)
			guest, other := s.User("guest-"+short), s.User("other-"+short)
			group, err := s.As("olga").CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: short})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.As("olga").PatchGroup(t.Context(), group.ID, sdk.PatchGroupRequest{AddUsers: []string{guest.String()}}); err != nil {
				t.Fatal(err)
			}
			req := sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{other.String(): sdk.RoleUse}, GroupRoles: map[string]string{}}
			if c.byGroup {
				req.GroupRoles[group.ID.String()] = sdk.RoleUse
			} else {
				req.UserRoles[guest.String()] = sdk.RoleUse
			}
			if err := s.As(p.name).UpdateWorkspaceACL(t.Context(), p.workspace, req); err != nil {
				t.Fatal(err)
			}
			cut := open(t, s, p, s.Session("guest-"+short).Reveal())
			kept, own := open(t, s, p, s.Session("other-"+short).Reveal()), open(t, s, p, s.Session(p.name).Reveal())
			cut.stands(t)
			if err := c.end(p, guest, group.ID); err != nil {
				t.Fatal(err)
			}
			cut.without(t)
			kept.stands(t)
			own.stands(t)
		})
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestSharingIsTheOwnersAndTheirDelegates: who may share a workspace, with whom, and what the shares allow.
func TestSharingIsTheOwnersAndTheirDelegates(t *testing.T) {
	s := coderdtest.New(t)
	ws, agent := s.Running("ann", "dev", s.Template("process", nil).ID)
	ann, bob := s.As("ann"), s.User("bob")
	share := func(as string, user uuid.UUID, role string) error {
		return s.As(as).UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{user.String(): role}})
	}
	reads := func(as string) fault.Code {
		_, err := s.As(as).Workspace(t.Context(), ws.ID)
		return fault.CodeOf(err)
	}
	for _, outsider := range []string{"bob", "tom"} {
		if err := share(outsider, s.User(outsider), sdk.RoleAdmin); err == nil {
			t.Errorf("%s shared a workspace of ann's with themselves", outsider)
		}
	}
	if got := reads("bob"); got != fault.NotFound {
		t.Errorf("outsider reads the workspace: %q", got)
	}
	if err := share("ann", bob, sdk.RoleUse); err != nil {
		t.Fatal(err)
	}
	// Use: see it and connect, nothing else.
	if got := reads("bob"); got != "" {
		t.Errorf("shared user reads the workspace: %q", got)
	}
	if err := s.Agents.MayConnect(t.Context(), rbac.Actor{UserID: bob}, agent); err != nil {
		t.Error(err)
	}
	if _, err := s.As("bob").WorkspaceByName(t.Context(), "ann", "dev"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"share with another": share("bob", s.User("carol"), sdk.RoleUse),
		"raise own level":    share("bob", bob, sdk.RoleAdmin),
		"read the sharing":   second(s.As("bob").WorkspaceACL(t.Context(), ws.ID)),
		"stop":               second(s.As("bob").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop})),
		"end the sharing":    s.As("bob").DeleteWorkspaceACL(t.Context(), ws.ID),
	} {
		if fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s with use: %v, want forbidden", what, err)
		}
	}
	if err := share("ann", bob, sdk.RoleAdmin); err != nil {
		t.Fatal(err)
	}
	if err := share("bob", s.User("carol"), sdk.RoleUse); err != nil {
		t.Errorf("admin shares: %v", err)
	}
	if _, err := s.As("bob").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionDelete}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("admin deletes another's workspace: %v, want forbidden", err)
	}
	acl, err := ann.WorkspaceACL(t.Context(), ws.ID)
	if err != nil || len(acl.Users) != 2 || acl.Users[0].Username != "bob" || acl.Users[0].Role != "admin" || acl.Users[1].Role != "use" {
		t.Errorf("acl: %+v, %v", acl, err)
	}
}

// TestSharingNeedsMembers: a workspace is shared with members of its organization, at levels that exist, until its owner ends that. Nothing of a
// refused request is kept.
func TestSharingNeedsMembers(t *testing.T) {
	s := coderdtest.New(t)
	ws, _ := s.Running("ann", "dev", s.Template("process", nil).ID)
	ann, bob := s.As("ann"), s.User("bob")
	reads := func(as string) fault.Code {
		_, err := s.As(as).Workspace(t.Context(), ws.ID)
		return fault.CodeOf(err)
	}
	shared := map[string]string{bob.String(): sdk.RoleUse, s.User("carol").String(): sdk.RoleUse}
	if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: shared}); err != nil {
		t.Fatal(err)
	}
	stranger, expelled := uuid.New(), s.User("dave")
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, expelled)
	for what, req := range map[string]sdk.UpdateWorkspaceACLRequest{
		"stranger":     {UserRoles: map[string]string{stranger.String(): "use", bob.String(): ""}},
		"not a member": {UserRoles: map[string]string{expelled.String(): "use", bob.String(): ""}},
		"level":        {UserRoles: map[string]string{s.User("erin").String(): "owner", bob.String(): ""}},
		"id":           {UserRoles: map[string]string{"erin": "use", bob.String(): ""}},
		"owner":        {UserRoles: map[string]string{s.User("ann").String(): "use", bob.String(): ""}},
		"group":        {GroupRoles: map[string]string{bob.String(): "use"}, UserRoles: map[string]string{bob.String(): ""}},
		"user":         {UserRoles: map[string]string{s.Org.String(): "use", bob.String(): ""}},
	} {
		if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", what, err)
		}
	}
	if got := reads("bob"); got != "" {
		t.Errorf("a refused request changed the sharing: %q", got)
	}
	// Everyone.
	if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{GroupRoles: map[string]string{s.Org.String(): sdk.RoleUse}}); err != nil {
		t.Fatal(err)
	}
	if got := reads("erin"); got != "" {
		t.Errorf("shared with Everyone: %q", got)
	}
	if err := ann.DeleteWorkspaceACL(t.Context(), ws.ID); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"bob", "carol", "erin"} {
		if got := reads(user); got != fault.NotFound {
			t.Errorf("%s after the end of the sharing: %q", user, got)
		}
	}
}

// TestWorkspacesNameTheReadersPermissions: a workspace says what its reader may do, on its own and in the list. Pages offer no more.
func TestWorkspacesNameTheReadersPermissions(t *testing.T) {
	s := coderdtest.New(t)
	ws, _ := s.Running("ann", "dev", s.Template("process", nil).ID)
	check := func(reader string, shared bool, want sdk.WorkspacePermissions) {
		t.Helper()
		got, err := s.As(reader).Workspace(t.Context(), ws.ID)
		if err != nil || got.Permissions != want || got.Shared != shared {
			t.Errorf("%s: got %+v, shared %t, %v; want %+v, shared %t", reader, got.Permissions, got.Shared, err, want, shared)
		}
		list, err := s.As(reader).Workspaces(t.Context(), sdk.WorkspacesQuery{})
		if err != nil || len(list.Workspaces) != 1 || list.Workspaces[0].Permissions != want || list.Workspaces[0].Shared != shared {
			t.Errorf("%s lists %+v, %v; want %+v", reader, list.Workspaces, err, want)
		}
	}
	all := sdk.WorkspacePermissions{Connect: true, Build: true, Update: true, Delete: true, Share: true, Withdraw: true}
	check("ann", false, all)
	check("tom", false, sdk.WorkspacePermissions{})
	check("olga", false, sdk.WorkspacePermissions{Build: true, Update: true, Delete: true, Withdraw: true, Transfer: true, RestoreState: true})
	for role, want := range map[string]sdk.WorkspacePermissions{
		sdk.RoleUse:   {Connect: true},
		sdk.RoleAdmin: {Connect: true, Build: true, Update: true, Share: true, Withdraw: true},
	} {
		if err := s.As("ann").UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{s.User("bob").String(): role}}); err != nil {
			t.Fatal(err)
		}
		check("bob", true, want)
		check("ann", true, all)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSearchForSharedWorkspaces: shared:, shared_with_user: and shared_with_group: select among those that the actor may see.
func TestSearchForSharedWorkspaces(t *testing.T) {
	s := coderdtest.New(t)
	template := s.Template("process", nil).ID
	strange, err := s.As("olga").CreateOrganization(t.Context(), sdk.CreateOrganizationRequest{Name: "strange"})
	if err != nil {
		t.Fatal(err)
	}
	mine, _ := s.Running("ann", "mine", template)
	lent, _ := s.Running("ann", "lent", template)
	s.Running("bob", "bobs", template)
	group, err := s.As("olga").CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "ops team"})
	if err != nil {
		t.Fatal(err)
	}
	bob := s.User("bob")
	if _, err := s.As("olga").PatchGroup(t.Context(), group.ID, sdk.PatchGroupRequest{AddUsers: []string{bob.String()}}); err != nil {
		t.Fatal(err)
	}
	if err := s.As("ann").UpdateWorkspaceACL(t.Context(), lent.ID, sdk.UpdateWorkspaceACLRequest{GroupRoles: map[string]string{group.ID.String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	if err := s.As("ann").UpdateWorkspaceACL(t.Context(), mine.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{s.User("carol").String(): "use"}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ as, q, want string }{
		{"ann", "shared:true", "lent mine"},
		{"ann", "shared:false", ""},
		{"ann", "owner:me", "lent mine"},
		{"ann", "shared_with_user:bob", "lent"},
		{"ann", "shared_with_user:me", ""},
		{"bob", "", "lent bobs"},
		{"bob", "owner:me", "bobs"},
		{"bob", "shared:true", "lent"},
		{"bob", "shared_with_user:me", "lent"},
		{"bob", "shared_with_user:" + bob.String(), "lent"},
		{"bob", "shared_with_user:carol", ""}, // ann's other workspace is not bob's business
		{"bob", "shared_with_user:nosuch", ""},
		{"bob", `shared_with_group:"ops team"`, "lent"},
		{"bob", "shared_with_group:" + group.ID.String(), "lent"},
		{"bob", "shared_with_group:nosuch", ""},
		{"bob", "organization:default", "lent bobs"},
		{"bob", "organization:" + s.Org.String() + " owner:me", "bobs"},
		{"bob", "organization:" + strange.ID.String(), ""},
		{"bob", "organization:strange", ""},
		{"bob", "organization:nosuch", ""},
		{"erin", "shared:true", ""},
		{"erin", "shared_with_user:bob", ""},
		{"erin", `shared_with_group:"ops team"`, ""},
	} {
		found, err := s.As(c.as).Workspaces(t.Context(), sdk.WorkspacesQuery{Q: c.q})
		if err != nil {
			t.Errorf("%s %q: %v", c.as, c.q, err)
			continue
		}
		var names []string
		for _, w := range found.Workspaces {
			names = append(names, w.Name)
		}
		if got := strings.Join(names, " "); got != c.want || found.Count != len(names) {
			t.Errorf("%s %q: got %q of %d, want %q", c.as, c.q, got, found.Count, c.want)
		}
	}
	for _, q := range []string{"shared:maybe", "shared_with_user:bob shared_with_group:x"} {
		if _, err := s.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: q}); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%q: %v, want invalid", q, err)
		}
	}
}

// sharing is how a user shares a workspace.
type sharing struct {
	t  *testing.T
	by *sdk.Client
	ws uuid.UUID
}

// levels are roles by user or group.
type levels = map[string]string

func (s sharing) users(l levels) error {
	return s.by.UpdateWorkspaceACL(s.t.Context(), s.ws, sdk.UpdateWorkspaceACLRequest{UserRoles: l})
}

func (s sharing) groups(l levels) error {
	return s.by.UpdateWorkspaceACL(s.t.Context(), s.ws, sdk.UpdateWorkspaceACLRequest{GroupRoles: l})
}

func (s sharing) port(number int, level sdk.AppShare) error {
	_, err := s.by.SharePort(s.t.Context(), s.ws, sdk.UpsertPortShareRequest{AgentName: "main", Port: number, ShareLevel: level})
	return err
}

// withdraw lowers and ends the sharing step by step: of a guest, of another user and of port 80.
func (s sharing) withdraw(guest, other uuid.UUID, allowed bool) {
	s.t.Helper()
	ctx := s.t.Context()
	for _, step := range []struct {
		way string
		err func() error
	}{
		{"lower a user", func() error { return s.users(levels{other.String(): "use"}) }},
		{"keep a role", func() error { return s.users(levels{other.String(): "use"}) }},
		{"remove a user", func() error { return s.users(levels{guest.String(): ""}) }},
		{"lower a port", func() error { return s.port(80, sdk.ShareOrganization) }},
		{"keep a port", func() error { return s.port(80, sdk.ShareOrganization) }},
		{"close a port", func() error {
			return s.by.DeletePortShare(ctx, s.ws, sdk.DeletePortShareRequest{AgentName: "main", Port: 80})
		}},
		{"end the sharing", func() error { return s.by.DeleteWorkspaceACL(ctx, s.ws) }},
	} {
		if err := step.err(); (err == nil) != allowed {
			s.t.Errorf("%s: %v, want allowed: %t", step.way, err, allowed)
		}
	}
}

// state returns with whom the workspace and its ports are shared.
func (s sharing) state() (sdk.WorkspaceACL, sdk.PortShares) {
	s.t.Helper()
	acl, err := s.by.WorkspaceACL(s.t.Context(), s.ws)
	if err != nil {
		s.t.Fatal(err)
	}
	ports, err := s.by.PortShares(s.t.Context(), s.ws)
	if err != nil {
		s.t.Fatal(err)
	}
	return acl, ports
}

// TestNoRoleSharesOthersWorkspaces: each role of the deployment and of the organization tries each way to give a user more of another
// user's workspace. None succeeds or changes anything. Those who may withdraw sharing can do so, and lower it.
func TestNoRoleSharesOthersWorkspaces(t *testing.T) {
	s := coderdtest.New(t)
	template := s.Template("process", nil)
	guest, other := s.User("guest"), s.User("other")
	group := uuid.New()
	s.Exec(`INSERT INTO groups (id, organization_id, name) VALUES ($1, $2, 'friends')`, group, s.Org)
	// Every permission that a custom role can have, and what earlier versions stored for "share".
	if _, err := s.As("olga").CreateOrganizationRole(t.Context(), sdk.DefaultOrganization, sdk.CustomRoleRequest{
		Name: "all", OrganizationPermissions: []sdk.Permission{{ResourceType: "workspace", Action: "*"}},
	}); err != nil {
		t.Fatal(err)
	}
	s.Exec(`INSERT INTO organization_roles (organization_id, name, powers) VALUES ($1, 'former', '[{"action": "share", "resource": "workspace"}, {"action": "read", "resource": "workspace"}]')`, s.Org)
	if _, err := s.As("olga").CreateOrganizationRole(t.Context(), sdk.DefaultOrganization, sdk.CustomRoleRequest{
		Name: "sharer", OrganizationPermissions: []sdk.Permission{{ResourceType: "workspace", Action: "share"}},
	}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a custom role that shares workspaces: %v, want invalid", err)
	}
	withdraws := map[string]bool{"owner": true, "organization-admin": true, "all": true, "former": true}
	roles := map[string]string{}
	for _, role := range rbac.SiteRoles() {
		roles[role] = "users"
	}
	for _, role := range append(rbac.OrganizationRoles(), "all", "former") {
		roles[role] = "organization_members"
	}
	for role, table := range roles {
		t.Run(role, func(t *testing.T) {
			s.T = t
			ws, agent := s.Running("ann", "dev-"+role, template.ID)
			me := s.User("h-" + role)
			if table == "users" {
				s.Exec(`UPDATE users SET roles = ARRAY[$2] WHERE id = $1`, me, role)
			} else {
				s.Exec(`UPDATE organization_members SET roles = ARRAY[$2] WHERE user_id = $1`, me, role)
			}
			ann, holder := s.As("ann"), s.As("h-"+role)
			if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{guest.String(): "use", other.String(): "admin"}}); err != nil {
				t.Fatal(err)
			}
			owners, theirs := sharing{t, ann, ws.ID}, sharing{t, holder, ws.ID}
			if err := owners.port(80, sdk.ShareAuthenticated); err != nil {
				t.Fatal(err)
			}
			acl, ports := owners.state()
			for way, err := range map[string]error{
				"itself":                theirs.users(levels{me.String(): "use"}),
				"itself as admin":       theirs.users(levels{me.String(): "admin"}),
				"an accomplice":         theirs.users(levels{s.User("eve").String(): "use"}),
				"raise a guest":         theirs.users(levels{guest.String(): "admin"}),
				"withdraw and give":     theirs.users(levels{guest.String(): "", other.String(): "use", me.String(): "use"}),
				"a group":               theirs.groups(levels{group.String(): "use"}),
				"Everyone":              theirs.groups(levels{s.Org.String(): "use"}),
				"a new port":            theirs.port(81, sdk.ShareOrganization),
				"a new port, signed in": theirs.port(81, sdk.ShareAuthenticated),
				"a new public port":     theirs.port(81, sdk.SharePublic),
				"raise a port":          theirs.port(80, sdk.SharePublic),
			} {
				if code := fault.CodeOf(err); code != fault.Forbidden && code != fault.NotFound {
					t.Errorf("%s: %v, want it refused", way, err)
				}
			}
			if a, p := owners.state(); !cmp.Equal(a, acl) || !cmp.Equal(p, ports) {
				t.Errorf("a refused request changed the sharing: %s", cmp.Diff([]any{acl, ports}, []any{a, p}))
			}
			if actor, err := s.Users.Actor(t.Context(), me); err != nil || s.Agents.MayConnect(t.Context(), actor, agent) == nil {
				t.Errorf("the role reaches the workspace, or %v", err)
			}
			theirs.withdraw(guest, other, withdraws[role])
			if a, p := owners.state(); withdraws[role] && len(a.Users)+len(a.Groups)+len(p.Shares) != 0 {
				t.Errorf("after the withdrawal: %+v %+v", a, p)
			}
		})
	}
	s.T = t
}
