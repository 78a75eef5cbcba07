package signin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/idpsync"
	"github.com/codermesh/codermesh/v2/coderd/signin"
	"github.com/codermesh/codermesh/v2/coderd/signin/signintest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// newSyncWorld is newWorld with settings of sync.
func newSyncWorld(t *testing.T, initial idpsync.Initial, edit ...func(*signin.OIDCConfig)) *world {
	t.Helper()
	w := &world{t: t}
	w.Server = coderdtest.New(t, func(o *coderd.Options) {
		w.provider = signintest.New(t, o.AccessURL)
		cfg := w.provider.Settings()
		for _, edit := range edit {
			edit(&cfg)
		}
		var err error
		if o.OIDC, err = signin.NewOIDC(cfg, o.AccessURL); err != nil {
			t.Fatal(err)
		}
		o.ClaimSync = initial
	})
	w.User("olga")
	return w
}

// says makes the provider add claims to each ID token.
func (w *world) says(more map[string]any) {
	w.provider.Tamper(func(claims map[string]any) {
		for name, value := range more {
			claims[name] = value
		}
	})
}

// groupsOf returns the names of a user's groups.
func (w *world) groupsOf(username string) string {
	w.t.Helper()
	var names []string
	rows, err := w.DB.Pool.Query(w.t.Context(), `SELECT g.name FROM groups g JOIN group_members m ON m.group_id = g.id JOIN users u ON u.id = m.user_id WHERE u.username = $1 ORDER BY 1`, username)
	if err != nil {
		w.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			w.t.Fatal(err)
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func (w *world) is(what, got, want string) {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// TestGroupsFollowClaims: sign-ins and renewals give and take groups, and leave alone what an administrator gave.
func TestGroupsFollowClaims(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{Groups: sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}})
	ctx, olga := t.Context(), w.As("olga")
	w.says(map[string]any{"groups": []string{"devs", "ops"}})
	session := w.signIn(ann)
	w.is("first sign-in", w.groupsOf("ann"), "devs ops")

	manual := must[sdk.Group](t)(olga.CreateGroup(ctx, sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "manual"}))
	must[sdk.Group](t)(olga.PatchGroup(ctx, manual.ID, sdk.PatchGroupRequest{AddUsers: []string{w.me(session).ID.String()}}))
	w.says(map[string]any{"groups": []string{"ops"}})
	if err := w.SignIn.CheckNow(ctx); err != nil {
		t.Fatal(err)
	}
	w.is("after a renewal", w.groupsOf("ann"), "manual ops")

	w.says(map[string]any{"groups": 5})
	w.signIn(ann)
	w.is("a claim of a wrong type", w.groupsOf("ann"), "manual ops")
	if !strings.Contains(w.Logged(), "claim cannot be used as it is") || !strings.Contains(w.Logged(), "claim=groups") || !strings.Contains(w.Logged(), "user=ann") {
		t.Errorf("the log does not name the claim and the user:\n%s", w.Logged())
	}
	w.says(nil)
	w.signIn(ann)
	w.is("without the claim", w.groupsOf("ann"), "manual")

	var rows []string
	for _, row := range must[sdk.AuditLogsResponse](t)(olga.AuditLogs(ctx, sdk.LogQuery{Q: "resource_type:group", Limit: 100})).AuditLogs {
		rows = append(rows, row.Actor+" "+row.Action+" "+row.ResourceTarget)
	}
	slices.Reverse(rows)
	w.is("audit log", strings.Join(rows, ", "), "identity provider create devs, identity provider create ops, identity provider write devs, identity provider write ops, "+
		"olga create manual, olga write manual, identity provider write devs, identity provider write ops")
}

// TestManyClaims: ten thousand groups, wrong and odd ones among them, neither stop a sign-in nor take anything away.
func TestManyClaims(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{Groups: sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}})
	w.says(map[string]any{"groups": []any{"devs"}})
	w.signIn(ann)
	var all []any
	for i := range 9000 {
		all = append(all, fmt.Sprint("group ", i))
	}
	all = append(all, 5, nil, []string{"x"}, strings.Repeat("long", 400), "a\u0000b", "Devs")
	w.says(map[string]any{"groups": all})
	w.signIn(ann)
	if got := strings.Fields(w.groupsOf("ann")); !slices.Contains(got, "devs") {
		t.Errorf("ann left devs: %q", got)
	}
	if n := w.count("SELECT count(*) FROM groups WHERE source = 'oidc'"); n != 101 {
		t.Errorf("%d groups were created; want the first and 100", n)
	}
}

// TestAllowedGroups: only members of the allowed groups sign in, and a renewal that shows that they left ends their sessions.
func TestAllowedGroups(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{}, func(c *signin.OIDCConfig) { c.GroupField, c.AllowedGroups = "groups", []string{"staff", "guests"} })
	const refusal = "You are not in a group that may sign in here"
	for _, groups := range []any{nil, []string{}, []string{"Staff", "others"}, 5, "staff,guests", map[string]any{"staff": 1}} {
		w.says(map[string]any{"groups": groups})
		w.refused(ann, http.StatusForbidden, refusal)
	}
	// An account with a password is converted by members of the groups only.
	pat, b := w.patWith(), w.browser()
	ofPat := signintest.User{Subject: "s-pat", Username: "p", Email: "private@mail.example", Name: "Pat", Verified: true}
	for _, row := range []struct {
		group string
		may   bool
	}{{"others", false}, {"staff", true}} {
		w.says(map[string]any{"groups": []string{row.group}})
		begun := decode[sdk.OAuthConversionResponse](t, b.convert(pat, sdk.ConvertLoginRequest{ToType: sdk.LoginOIDC, Password: password}).text)
		w.provider.SignIn(ofPat)
		p := b.open(callback + "?oidc_merge_state=" + url.QueryEscape(begun.StateString))
		if row.may != (b.session() != "") || row.may == strings.Contains(p.text, refusal) {
			t.Errorf("convert as one of %s: %s", row.group, p)
		}
	}

	w.says(map[string]any{"groups": []string{"others", "guests"}})
	session := w.signIn(ann)
	if err := w.SignIn.CheckNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.me(session)
	w.says(map[string]any{"groups": 5}) // not evidence
	if err := w.SignIn.CheckNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.me(session)
	w.says(map[string]any{"groups": []string{"others"}})
	if err := w.SignIn.CheckNow(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := session.User(t.Context(), sdk.Me); fault.CodeOf(err) != fault.Unauthenticated || !strings.Contains(err.Error(), "no longer in a group") {
		t.Errorf("after ann left the group: %v", err)
	}
}

// TestOrganizationsFollowClaims: organizations and roles in them. A user who leaves cannot reach the workspaces that they own there, and
// nothing of them is lost.
func TestOrganizationsFollowClaims(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{})
	ctx, olga := t.Context(), w.As("olga")
	east := must[sdk.Organization](t)(olga.CreateOrganization(ctx, sdk.CreateOrganizationRequest{Name: "east"}))
	must[sdk.OrganizationSyncSettings](t)(olga.SetOrganizationSync(ctx, sdk.OrganizationSyncSettings{
		Field: "teams", Mapping: sdk.Map[sdk.List[uuid.UUID]]{"e": {east.ID}}, AssignDefault: true,
	}))
	must[sdk.RoleSyncSettings](t)(olga.SetRoleSync(ctx, "east", sdk.RoleSyncSettings{Field: "teams", Mapping: sdk.Map[sdk.List[string]]{"boss": {"organization-admin"}}}))
	w.says(map[string]any{"teams": []string{"e", "boss"}})
	session := w.signIn(ann)
	roles := func() string {
		var out string
		err := w.DB.Pool.QueryRow(ctx, `SELECT coalesce(string_agg(o.name || array_to_string(m.roles, ',', ''), ' ' ORDER BY o.is_default DESC), '')
			FROM organization_members m JOIN organizations o ON o.id = m.organization_id JOIN users u ON u.id = m.user_id WHERE u.username = 'ann'`).Scan(&out)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	initial := must[sdk.Organization](t)(olga.Organization(ctx, sdk.DefaultOrganization)).Name
	w.is("member of", roles(), initial+" eastorganization-admin")

	workspace, _ := w.RunningRow("ann", "dev")
	w.Exec("UPDATE workspaces SET organization_id = $1 WHERE id = $2", east.ID, workspace)
	must[sdk.Workspace](t)(session.Workspace(ctx, workspace))
	w.says(map[string]any{"teams": []string{}})
	if err := w.SignIn.CheckNow(ctx); err != nil {
		t.Fatal(err)
	}
	w.is("member of", roles(), initial)
	if _, err := session.Workspace(ctx, workspace); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("ann's workspace in the organization that she left: %v", err)
	}
	must[sdk.Workspace](t)(olga.Workspace(ctx, workspace))
	if !strings.Contains(w.Logged(), "owns workspaces there") {
		t.Error("the log does not tell of the workspaces")
	}
	w.says(map[string]any{"teams": []string{"e"}})
	w.signIn(ann)
	w.is("member of", roles(), initial+" east")
	must[sdk.Workspace](t)(session.Workspace(ctx, workspace))
}

// TestSiteRolesFollowClaims: the options of the server give roles in the deployment; the last owner stays one; administrators cannot
// change these roles.
func TestSiteRolesFollowClaims(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{Site: idpsync.SiteRoles{Field: "roles", Mapping: map[string][]string{"root": {"owner"}}}})
	ctx := t.Context()
	roles := func(c *sdk.Client) string {
		var out []string
		for _, role := range w.me(c).Roles {
			out = append(out, role.Name)
		}
		return strings.Join(out, " ")
	}
	w.says(map[string]any{"roles": []string{"root", "auditor", "nonsense"}})
	session := w.signIn(ann)
	w.is("first", roles(session), "auditor owner")
	if _, err := w.As("olga").UpdateUserRoles(ctx, "ann", sdk.UpdateRolesRequest{Roles: []string{"owner", "user-admin"}}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("an administrator changes synced roles: %v", err)
	}
	must[sdk.User](t)(w.As("olga").UpdateUserRoles(ctx, w.named("pat"), sdk.UpdateRolesRequest{Roles: []string{"user-admin"}}))

	w.says(map[string]any{"roles": []string{"template-admin"}})
	if err := w.SignIn.CheckNow(ctx); err != nil {
		t.Fatal(err)
	}
	w.is("after a renewal", roles(session), "template-admin")

	w.says(map[string]any{"roles": []string{"root"}})
	w.signIn(ann)
	w.Exec("UPDATE users SET roles = '{}' WHERE username = 'olga'")
	w.says(map[string]any{"roles": []string{}})
	session = w.signIn(ann)
	w.is("the last owner", roles(session), "owner")
	if !strings.Contains(w.Logged(), "last owner") {
		t.Error("the log does not tell of the last owner")
	}
}

// named creates a user with a password and returns the name.
func (w *world) named(name string) string {
	w.t.Helper()
	w.User(name)
	return name
}

// TestSimultaneousSignIns: sign-ins of one user, and of others, on two servers at the same instant create each group once and all end well.
func TestSimultaneousSignIns(t *testing.T) {
	t.Parallel()
	w := newSyncWorld(t, idpsync.Initial{Groups: sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}})
	other := coderdtest.New(t, func(o *coderd.Options) {
		o.DB, o.AccessURL = w.DB, w.URL
		o.ClaimSync = idpsync.Initial{Groups: sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}}
	})
	w.says(map[string]any{"groups": []string{"a", "b", "c", "d"}})
	w.signIn(ann)
	bob := ann
	bob.Subject, bob.Username, bob.Email = "s-bob", "bob", "bob@corp.example"
	w.signIn(bob)
	ids := map[string]uuid.UUID{}
	for _, name := range []string{"ann", "bob"} {
		ids[name] = must[sdk.User](t)(w.As("olga").User(t.Context(), name)).ID
	}
	var work sync.WaitGroup
	for i := range 24 {
		service := []*idpsync.Service{w.IDPSync, other.IDPSync}[i%2]
		name := []string{"ann", "bob"}[i/2%2]
		c := idpsync.Claims{Values: map[string]any{"groups": []any{"new 1", "new 2", "new 3", fmt.Sprint("own ", i%3)}}}
		work.Go(func() {
			if err := syncNow(t.Context(), w, service, ids[name], c); err != nil {
				t.Errorf("sync %d: %v", i, err)
			}
		})
	}
	work.Wait()
	if n := w.count("SELECT count(*) FROM groups WHERE name LIKE 'new%'"); n != 3 {
		t.Errorf("%d groups for three names", n)
	}
	for name := range ids {
		got := w.groupsOf(name)
		if n := w.count("SELECT count(*) FROM group_members WHERE user_id = $1", ids[name]); n != 4 || !strings.HasPrefix(got, "new 1 new 2 new 3 own ") {
			t.Errorf("%s is in %q", name, got)
		}
	}
}

func syncNow(ctx context.Context, w *world, s *idpsync.Service, user uuid.UUID, c idpsync.Claims) error {
	return w.DB.InTx(ctx, func(q *dbsqlc.Queries) error {
		_, err := s.Sync(ctx, q, user, c)
		return err
	})
}
