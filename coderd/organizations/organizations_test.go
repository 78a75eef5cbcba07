package organizations_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// person is a caller of the API.
type person struct {
	*coderdtest.Server
	name string
}

func (p person) send(method, path string, body any) (int, []byte) {
	p.T.Helper()
	var payload io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			p.T.Fatal(err)
		}
		payload = strings.NewReader(string(text))
	}
	r := httptest.NewRequest(method, "/api/v2/"+path, payload)
	r.Header.Set("Coder-Session-Token", p.Token(p.name))
	w := httptest.NewRecorder()
	p.Mux.ServeHTTP(w, r)
	return w.Code, w.Body.Bytes()
}

// want fails the test unless the answer has the status.
func (p person) want(status int, method, path string, body any) []byte {
	p.T.Helper()
	got, text := p.send(method, path, body)
	if got != status {
		p.T.Errorf("%s: %s %s: got %d %s, want %d", p.name, method, path, got, text, status)
	}
	return text
}

// call is like want, and decodes the answer.
func call[T any](p person, status int, method, path string, body any) (out T) {
	p.T.Helper()
	text := p.want(status, method, path, body)
	if err := json.Unmarshal(text, &out); err != nil {
		p.T.Fatalf("%s: %s %s: answer %q: %v", p.name, method, path, text, err)
	}
	return out
}

type roles = sdk.UpdateRolesRequest

func custom(name string, permissions ...string) sdk.CustomRoleRequest {
	req := sdk.CustomRoleRequest{Name: name}
	for _, p := range permissions {
		resource, action, _ := strings.Cut(p, ".")
		req.OrganizationPermissions = append(req.OrganizationPermissions, sdk.Permission{ResourceType: resource, Action: action})
	}
	return req
}

// world is a server with the organizations east and west. olga owns the deployment, ada administers east, wes west; eve administers
// east's members; mia is a member of east; una is a user-admin.
type world struct {
	*coderdtest.Server
	east, west                         sdk.Organization
	olga, ada, wes, eve, mia, una, out person
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: coderdtest.New(t)}
	as := func(name string) person { w.User(name); return person{w.Server, name} }
	w.olga, w.ada, w.wes, w.eve, w.mia, w.una, w.out = as("olga"), as("ada"), as("wes"), as("eve"), as("mia"), as("una"), as("out")
	w.Exec(`UPDATE users SET roles = '{user-admin}' WHERE username = 'una'`)
	w.east = call[sdk.Organization](w.olga, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "east", DisplayName: "Far East"})
	w.west = call[sdk.Organization](w.olga, 201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "west"})
	for _, m := range []string{"east ada organization-admin", "west wes organization-admin", "east eve organization-user-admin", "east mia"} {
		f := strings.Fields(m)
		w.olga.want(200, "POST", "organizations/"+f[0]+"/members/"+f[1], nil)
		w.olga.want(200, "PUT", "organizations/"+f[0]+"/members/"+f[1]+"/roles", roles{Roles: f[2:]})
	}
	return w
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if w.east.DisplayName != "Far East" || w.west.DisplayName != "west" || w.east.IsDefault {
		t.Errorf("created %+v and %+v", w.east, w.west)
	}
	names := func(p person, path string) string {
		var all []string
		for _, o := range call[[]sdk.Organization](p, 200, "GET", path, nil) {
			all = append(all, o.Name)
		}
		return strings.Join(all, " ")
	}
	initial := call[sdk.Organization](w.olga, 200, "GET", "organizations/default", nil).Name
	for _, row := range []struct {
		p          person
		path, want string
	}{
		{w.olga, "organizations", initial + " east west"},
		{w.ada, "organizations", initial + " east"},
		{w.out, "organizations", initial},
		{w.mia, "users/me/organizations", initial + " east"},
		{w.olga, "users/mia/organizations", initial + " east"},
	} {
		if got := names(row.p, row.path); got != row.want {
			t.Errorf("%s: %s: got %q, want %q", row.p.name, row.path, got, row.want)
		}
	}
	icon := "/icon/tent.svg"
	changed := call[sdk.Organization](w.ada, 200, "PATCH", "organizations/east", sdk.UpdateOrganizationRequest{Name: "orient", Icon: &icon})
	if changed.Name != "orient" || changed.Icon != icon || changed.DisplayName != "Far East" {
		t.Errorf("changed to %+v", changed)
	}
	w.ada.want(409, "PATCH", "organizations/orient", sdk.UpdateOrganizationRequest{Name: "west"})
	for _, bad := range []string{"", "Upper", "-x", "a b", "default", "new", uuid.NewString(), strings.Repeat("x", 33)} {
		w.olga.want(400, "POST", "organizations", sdk.CreateOrganizationRequest{Name: bad})
	}
	w.olga.want(409, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "west"})
	for _, p := range []person{w.ada, w.una, w.mia} {
		w.una.want(403, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "mine"})
		if code, _ := p.send("DELETE", "organizations/orient", nil); code != 403 {
			t.Errorf("%s deletes an organization: %d", p.name, code)
		}
	}
	w.olga.want(409, "DELETE", "organizations/default", nil)
	w.Exec(`INSERT INTO provisioner_keys (id, organization_id, name, tags, secret_hash, created_by) VALUES ($1, $2, 'k', '{}', 'x', $3)`, uuid.New(), w.east.ID, w.User("ada"))
	if text := string(w.olga.want(409, "DELETE", "organizations/orient", nil)); !strings.Contains(text, "1 provisioner key") {
		t.Errorf("an organization in use: %s", text)
	}
	w.ada.want(204, "DELETE", "organizations/orient/provisionerkeys/k", nil)
	w.olga.want(200, "DELETE", "organizations/orient", nil)
	w.olga.want(404, "GET", "organizations/orient", nil)
	w.ada.want(404, "GET", "organizations/"+w.east.ID.String(), nil)
	if me := call[sdk.User](w.ada, 200, "GET", "users/me", nil); slices.Contains(me.OrganizationIDs, w.east.ID) || len(me.OrganizationIDs) != 1 {
		t.Errorf("organizations of a member after the deletion: %v", me.OrganizationIDs)
	}
	w.olga.want(201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "orient"}) // the name is free again
}

func TestMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := call[sdk.PaginatedMembers](w.mia, 200, "GET", "organizations/east/paginated-members?limit=1&offset=1", nil)
	if page.Count != 4 || len(page.Members) != 1 || page.Members[0].Username != "eve" || page.Members[0].Email != "" || page.Members[0].Roles[0].Name != "organization-user-admin" {
		t.Errorf("a member reads the page %+v", page)
	}
	if m := call[sdk.OrganizationMember](w.eve, 200, "GET", "organizations/east/members/mia", nil); m.Email == "" || m.Status != "active" || len(m.GlobalRoles) != 0 {
		t.Errorf("an administrator of members reads %+v", m)
	}
	w.eve.want(202, "POST", "organizations/east/members/out", nil)
	w.eve.want(409, "POST", "organizations/east/members/out", nil)
	w.out.want(200, "POST", "users/me/invitations/east/accept", nil)
	w.eve.want(409, "POST", "organizations/east/members/out", nil)
	w.eve.want(404, "POST", "organizations/east/members/nosuch", nil)
	w.mia.want(403, "POST", "organizations/east/members/wes", nil)
	w.mia.want(403, "DELETE", "organizations/east/members/out", nil)
	w.eve.want(204, "DELETE", "organizations/east/members/out", nil)
	w.eve.want(404, "DELETE", "organizations/east/members/out", nil)
	w.out.want(404, "GET", "organizations/east", nil)
	if all := call[[]sdk.MinimalUser](w.ada, 200, "GET", "organizations/east/members/me/workspaces/available-users", nil); len(all) != 4 {
		t.Errorf("an administrator may create workspaces for %+v", all)
	}
	if all := call[[]sdk.MinimalUser](w.mia, 200, "GET", "organizations/east/members/me/workspaces/available-users", nil); len(all) != 1 || all[0].Username != "mia" {
		t.Errorf("a member may create workspaces for %+v", all)
	}
	// A short list of those whom a search finds has the one with that name.
	w.una.want(201, "POST", "users", sdk.CreateUserRequest{Email: "a@example.com", Username: "a-mia", LoginType: "none", OrganizationIDs: []uuid.UUID{w.east.ID}})
	if found := call[[]sdk.MinimalUser](w.ada, 200, "GET", "organizations/east/members/me/workspaces/available-users?q=mia&limit=1", nil); len(found) != 1 || found[0].Username != "mia" {
		t.Errorf("owners named mia: %+v", found)
	}
	if found := call[sdk.PaginatedMembers](w.ada, 200, "GET", "organizations/east/paginated-members?q=MIA&limit=1", nil); found.Count != 2 || len(found.Members) != 1 || found.Members[0].Username != "mia" {
		t.Errorf("members named mia: %+v", found)
	}
	// Users are created in the organizations that the request names.
	made := call[sdk.User](w.una, 201, "POST", "users", sdk.CreateUserRequest{Email: "n@example.com", Username: "new-one", LoginType: "none", OrganizationIDs: []uuid.UUID{w.west.ID}})
	if !slices.Equal(made.OrganizationIDs, []uuid.UUID{w.west.ID}) {
		t.Errorf("created in %v", made.OrganizationIDs)
	}
	w.una.want(404, "POST", "users", sdk.CreateUserRequest{Email: "m@example.com", Username: "m", LoginType: "none", OrganizationIDs: []uuid.UUID{uuid.New()}})
}

// TestGrants checks that users cannot give or take more than they have.
func TestGrants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	member := func(user string) string { return "organizations/east/members/" + user + "/roles" }
	const list = "organizations/east/members/roles"
	w.eve.want(403, "PUT", member("mia"), roles{Roles: []string{"organization-admin"}})
	w.eve.want(403, "PUT", member("mia"), roles{Roles: []string{"organization-template-admin"}})
	w.eve.want(200, "PUT", member("mia"), roles{Roles: []string{"organization-user-admin", "organization-member"}})
	w.eve.want(200, "PUT", member("mia"), roles{})
	w.eve.want(400, "PUT", member("eve"), roles{Roles: []string{"organization-admin"}})
	w.eve.want(403, "PUT", member("ada"), roles{}) // nor take it away
	w.eve.want(403, "DELETE", "organizations/east/members/ada", nil)
	w.una.want(403, "PUT", member("mia"), roles{Roles: []string{"organization-admin"}})
	w.una.want(403, "PUT", "users/una/roles", roles{Roles: []string{"owner"}})
	w.una.want(403, "PUT", "users/mia/roles", roles{Roles: []string{"owner"}})
	w.ada.want(400, "PUT", member("mia"), roles{Roles: []string{"owner"}})
	w.ada.want(400, "PUT", member("mia"), roles{Roles: []string{"nosuch"}})
	w.mia.want(403, "POST", list, custom("x", "template.read"))
	w.eve.want(403, "POST", list, custom("x", "organization_member.update"))

	role := call[sdk.DetailedRole](w.ada, 200, "POST", list, custom("builder", "template.create", "template.read"))
	if role.DisplayName != "Builder" || len(role.OrganizationPermissions) != 2 {
		t.Errorf("created %+v", role)
	}
	w.ada.want(409, "POST", list, custom("builder"))
	w.ada.want(404, "PUT", list, custom("nosuch"))
	// An organization's admin does not hold what only owners of the deployment do.
	w.ada.want(403, "POST", list, custom("y", "organization.delete"))
	w.olga.want(200, "POST", list, custom("closer", "organization.delete"))
	w.ada.want(403, "PUT", member("mia"), roles{Roles: []string{"closer"}})
	w.ada.want(403, "PUT", list, custom("closer", "template.read"))
	w.ada.want(403, "DELETE", list+"/closer", nil)
	w.eve.want(403, "PUT", member("mia"), roles{Roles: []string{"builder"}})
	for _, bad := range []sdk.CustomRoleRequest{
		custom("organization-admin"), custom("owner"), custom("member"), custom("No Good"), custom(""), custom("x", "nosuch.read"), custom("x", "template.fly"),
		custom("x", "workspace.ssh"), custom("x", "workspace.application_connect"), custom("x", "user.read"),
		{Name: "x", OrganizationPermissions: []sdk.Permission{{ResourceType: "template", Action: "read", Negate: true}}},
		{Name: "x", SitePermissions: []sdk.Permission{{ResourceType: "user", Action: "read"}}},
	} {
		w.ada.want(400, "POST", list, bad)
	}
	// The role has effect at once, and ends at once.
	w.mia.want(403, "POST", "organizations/east/templates", nil)
	w.ada.want(200, "PUT", member("mia"), roles{Roles: []string{"builder"}})
	w.mia.want(400, "POST", "organizations/east/templates", nil) // allowed, and badly formed
	w.mia.want(403, "POST", "organizations/default/templates", nil)
	w.mia.want(404, "POST", "organizations/west/templates", nil)
	w.ada.want(200, "PUT", list, custom("builder", "template.read"))
	w.mia.want(403, "POST", "organizations/east/templates", nil)
	w.ada.want(204, "DELETE", list+"/builder", nil)
	if m := call[sdk.OrganizationMember](w.ada, 200, "GET", "organizations/east/members/mia", nil); len(m.Roles) != 0 {
		t.Errorf("roles after the deletion of one: %+v", m.Roles)
	}
	assignable := func(p person) (out []string) {
		for _, r := range call[[]sdk.AssignableRole](p, 200, "GET", list, nil) {
			if r.Assignable {
				out = append(out, r.Name)
			}
			if !r.BuiltIn && r.Name != "closer" {
				t.Errorf("a role that should not exist: %+v", r)
			}
		}
		return out
	}
	for _, row := range []struct {
		p    person
		want int
	}{{w.olga, 5}, {w.ada, 4}, {w.eve, 1}, {w.mia, 0}} {
		if got := assignable(row.p); len(got) != row.want {
			t.Errorf("%s may assign %v, want %d", row.p.name, got, row.want)
		}
	}
}

// TestOtherOrganization checks that the admin of one organization has no power in another one, and does not even see it.
func TestOtherOrganization(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.ada.want(200, "POST", "organizations/east/members/roles", custom("r", "template.read"))
	for _, row := range []struct {
		method, path string
		body         any
	}{
		{"GET", "", nil},
		{"PATCH", "", sdk.UpdateOrganizationRequest{DisplayName: "x"}},
		{"GET", "/members", nil},
		{"GET", "/paginated-members", nil},
		{"GET", "/members/mia", nil},
		{"POST", "/members/wes", nil},
		{"DELETE", "/members/mia", nil},
		{"PUT", "/members/mia/roles", roles{Roles: []string{"organization-admin"}}},
		{"GET", "/members/roles", nil},
		{"POST", "/members/roles", custom("x", "template.read")},
		{"PUT", "/members/roles", custom("r", "template.read")},
		{"DELETE", "/members/roles/r", nil},
		{"GET", "/members/me/workspaces/available-users", nil},
		{"GET", "/templates", nil},
		{"GET", "/provisionerkeys", nil},
		{"POST", "/provisionerkeys", sdk.CreateProvisionerKeyRequest{Name: "k"}},
		{"GET", "/provisionerdaemons", nil},
		{"GET", "/provisionerjobs", nil},
	} {
		for _, org := range []string{"east", w.east.ID.String(), "doesnotexist"} {
			w.wes.want(404, row.method, "organizations/"+org+row.path, row.body)
		}
		if row.method == "GET" {
			w.ada.want(200, row.method, "organizations/east"+row.path, row.body)
		}
	}
}
