package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

var (
	orgDefault = sdk.Organization{ID: uuid.New(), Name: "coder", IsDefault: true}
	orgEast    = sdk.Organization{ID: uuid.New(), Name: "east"}
	orgWest    = sdk.Organization{ID: uuid.New(), Name: "west"}
)

// TestOrganizationOfACommand checks which organization a command works in, by the flag, the environment and the user's memberships.
func TestOrganizationOfACommand(t *testing.T) {
	for _, c := range []struct {
		name      string
		mine      []sdk.Organization
		flag, env string
		want      string // requested path
		err, hint string
	}{
		{name: "only one", mine: []sdk.Organization{orgEast}, want: orgEast.ID.String()},
		{name: "default among several", mine: []sdk.Organization{orgDefault, orgEast}, want: orgDefault.ID.String()},
		{name: "named", mine: []sdk.Organization{orgDefault, orgEast}, flag: "east", want: orgEast.ID.String()},
		{name: "environment", mine: []sdk.Organization{orgDefault, orgEast}, env: "east", want: orgEast.ID.String()},
		{name: "flag before environment", mine: []sdk.Organization{orgDefault, orgEast}, flag: "coder", env: "east", want: orgDefault.ID.String()},
		{name: "several without the default one", mine: []sdk.Organization{orgEast, orgWest}, err: "several organizations: east, west", hint: "--org east"},
		{name: "none", err: "not a member of an organization", hint: "Name one with --org, or ask an administrator to add you."},
		{name: "unknown", mine: []sdk.Organization{orgDefault, orgEast}, flag: "nowhere", err: `no organization "nowhere", or you cannot see it`, hint: "--org coder"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := newAPI(t, map[string]any{
				"GET users/me/organizations": c.mine, "GET organizations": c.mine,
				"GET organizations/coder": orgDefault, "GET organizations/east": orgEast, "GET organizations/nowhere": fault.New(fault.NotFound, "none"),
				"GET organizations/{o}/provisionerkeys": []sdk.ProvisionerKey{},
			})
			t.Setenv("CODER_ORGANIZATION", c.env)
			args := []string{"--url", srv.url, "--token", "t", "provisioner", "keys", "list"}
			if c.flag != "" {
				args = append(args, "-O", c.flag)
			}
			r := run(t, "", "", args...)
			if c.err != "" {
				if r.fault == nil || !strings.Contains(r.fault.Error(), c.err) || hintText(r.fault) != c.hint {
					t.Fatalf("got %v, hint %q; want %q, hint %q", r.fault, hintText(r.fault), c.err, c.hint)
				}
				if f := fault.As(r.fault); c.flag == "nowhere" && f.Detail != "Your organizations: coder, east" {
					t.Errorf("detail %q does not name the user's organizations", f.Detail)
				}
				return
			}
			if r.fault != nil {
				t.Fatal(r.fault)
			}
			if want := "GET organizations/" + c.want + "/provisionerkeys"; srv.calls[len(srv.calls)-1] != want {
				t.Errorf("calls %q, want %q at the end", srv.calls, want)
			}
		})
	}
}

// TestTemplateInSeveralOrganizations: a name that two organizations have needs --org; a unique one does not, wherever it is.
func TestTemplateInSeveralOrganizations(t *testing.T) {
	t.Parallel()
	in := func(o sdk.Organization, name string) sdk.Template {
		return sdk.Template{ID: uuid.New(), Name: name, OrganizationID: o.ID, OrganizationName: o.Name}
	}
	here, there, only := in(orgDefault, "docker"), in(orgEast, "docker"), in(orgEast, "gpu")
	srv := newAPI(t, map[string]any{
		"GET templates": templatesNamed(there, here, only), "GET organizations/east/templates/docker": there,
		"GET organizations/nowhere/templates/docker": fault.New(fault.NotFound, "none"), "GET organizations/nowhere": fault.New(fault.NotFound, "none"),
		"GET organizations/east/templates/none": fault.New(fault.NotFound, "none"), "GET organizations/east": orgEast,
		"GET organizations":     []sdk.Organization{orgDefault, orgEast},
		"DELETE templates/{id}": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	})
	remove := func(args ...string) result {
		return run(t, "", "", append([]string{"--url", srv.url, "--token", "t", "templates", "delete", "-y"}, args...)...)
	}
	for _, c := range []struct {
		args      []string
		want      uuid.UUID
		err, hint string
	}{
		{args: []string{"docker"}, err: `several organizations have a template "docker": coder, east`, hint: "--org coder"},
		{args: []string{"docker", "--org", "east"}, want: there.ID},
		{args: []string{"gpu"}, want: only.ID},
		{args: []string{"docker", "--org", "nowhere"}, err: `no organization "nowhere"`, hint: "--org coder"},
		{args: []string{"none", "--org", "east"}, err: `no template "none"`, hint: "coder templates list"},
		{args: []string{"none"}, err: `no template "none"`, hint: "coder templates list"},
		{args: []string{`x" name:docker`}, err: `no template`, hint: "coder templates list"},
	} {
		r := remove(c.args...)
		if c.err != "" {
			if r.fault == nil || !strings.Contains(r.fault.Error(), c.err) || hintText(r.fault) != c.hint {
				t.Errorf("%q: got %v, hint %q; want %q, hint %q", c.args, r.fault, hintText(r.fault), c.err, c.hint)
			}
			continue
		}
		if want := "DELETE templates/" + c.want.String(); r.fault != nil || !slices.Contains(srv.calls, want) {
			t.Errorf("%q: %v; calls %q, want %q", c.args, r.fault, srv.calls, want)
		}
	}
}

// TestCustomRoleFromFlagsAndJSON: what roles create and update send; an update keeps what it does not name.
func TestCustomRoleFromFlagsAndJSON(t *testing.T) {
	t.Parallel()
	known := sdk.DetailedRole{Name: "deployer", DisplayName: "Deployer", OrganizationPermissions: sdk.List[sdk.Permission]{{ResourceType: "template", Action: "update"}}}
	srv := newAPI(t, map[string]any{
		"GET organizations/east": orgEast,
		"GET organizations/" + orgEast.ID.String() + "/members/roles":  []sdk.AssignableRole{{DetailedRole: known}},
		"POST organizations/" + orgEast.ID.String() + "/members/roles": known,
		"PUT organizations/" + orgEast.ID.String() + "/members/roles":  known,
	})
	roles := func(stdin string, args ...string) result {
		return run(t, "", stdin, append([]string{"--url", srv.url, "--token", "t", "organizations", "roles"}, append(args, "-O", "east")...)...)
	}
	const json = `{"name":"deployer","display_name":"%s","site_permissions":[],"organization_permissions":[%s],"organization_member_permissions":[],"user_permissions":[]}`
	body := func(display string, permissions ...string) string {
		for i, p := range permissions {
			kind, action, _ := strings.Cut(p, ":")
			permissions[i] = `{"negate":false,"resource_type":"` + kind + `","action":"` + action + `"}`
		}
		return strings.Replace(strings.Replace(json, "%s", display, 1), "%s", strings.Join(permissions, ","), 1)
	}
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"create", "deployer", "--permission", "template:create,group:*"}, "POST " + body("", "template:create", "group:*")},
		{"", []string{"update", "deployer", "--permission", "group:read"}, "PUT " + body("Deployer", "group:read")},
		{"", []string{"update", "deployer", "--display-name", "D"}, "PUT " + body("D", "template:update")},
		{body("J", "group:read"), []string{"create", "--stdin"}, "POST " + body("J", "group:read")},
		{"[" + body("J", "group:read") + "]", []string{"update", "deployer", "--stdin"}, "PUT " + body("J", "group:read")},
	} {
		r := roles(c.stdin, c.args...)
		method, want, _ := strings.Cut(c.want, " ")
		want = method + " organizations/" + orgEast.ID.String() + "/members/roles " + want
		if r.fault != nil || srv.calls[len(srv.calls)-1] != want {
			t.Errorf("%q: %v\ngot  %s\nwant %s", c.args, r.fault, srv.calls[len(srv.calls)-1], want)
		}
	}
	before := len(srv.calls)
	for _, c := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{"", []string{"create", "deployer"}, "--permission is missing"},
		{"", []string{"create", "--permission", "template:update"}, "the role is missing"},
		{"", []string{"update", "deployer"}, "--permission is missing"},
		{"", []string{"create", "deployer", "--permission", "template"}, "not KIND:ACTION"},
		{"{", []string{"create", "--stdin"}, "not a role in JSON"},
		{"{}", []string{"create", "--stdin"}, "has no name"},
		{body("x"), []string{"create", "other", "--stdin"}, `named "deployer", not "other"`},
		{"[]", []string{"create", "--stdin"}, "0 roles instead of one"},
		{body("x"), []string{"create", "--stdin", "--permission", "a:b"}, "permission"},
	} {
		if r := roles(c.stdin, c.args...); r.fault == nil || !strings.Contains(r.fault.Error(), c.want) {
			t.Errorf("%q: got %v, want %q", c.args, r.fault, c.want)
		}
	}
	if len(srv.calls) != before {
		t.Errorf("refused input reached the server: %q", srv.calls[before:])
	}
	if r := roles("", "create", "deployer", "--permission", "group:read", "--dry-run"); r.fault != nil || !strings.Contains(r.out, `"resource_type": "group"`) ||
		strings.HasPrefix(srv.calls[len(srv.calls)-1], "POST") {
		t.Errorf("--dry-run: %+v, calls %q", r, srv.calls[before:])
	}
}

// TestSyncSettings checks what shows and sets the settings of sync, and that bad input reaches no server.
func TestSyncSettings(t *testing.T) {
	groups := sdk.GroupSyncSettings{Field: "groups", AutoCreate: true}
	site := sdk.OrganizationSyncSettings{Field: "teams", AssignDefault: true}
	const east = "organizations/{o}/settings/idpsync/"
	srv := newAPI(t, map[string]any{
		"GET organizations/east": orgEast, "GET " + east + "groups": groups, "PATCH " + east + "groups": groups,
		"PATCH " + east + "roles": fault.New(fault.Invalid, "The role does not exist."), "GET settings/idpsync/organization": site,
	})
	settings := func(in string, args ...string) result {
		return run(t, "", in, append([]string{"--url", srv.url, "--token", "t", "organizations", "settings"}, args...)...)
	}
	for _, row := range []struct{ in, args, out, err, hint string }{
		{"", "show group-sync -O east", `"field": "groups"`, "", ""},
		{"", "show organization-sync", `"organization_assign_default": true`, "", ""},
		{`{"field":"groups","auto_create_missing_groups":true}`, "set groupsync -O east", `"auto_create_missing_groups": true`, "", ""},
		{`{"field":`, "set group-sync -O east", "", "not valid JSON", "| coder organizations settings set group-sync"},
		{`{"fields":"x"}`, "set group-sync -O east", "", "not valid JSON", "| coder organizations settings set group-sync"},
		{`{} {}`, "set role-sync -O east", "", "more than the settings", "| coder organizations settings set role-sync"},
		{`{"field":"x"}`, "set role-sync -O east", "", "does not exist", "| coder organizations settings set role-sync"},
	} {
		r := settings(row.in, strings.Fields(row.args)...)
		if row.err == "" && (r.fault != nil || !strings.Contains(r.out, row.out)) {
			t.Errorf("%s: %v, %s; want %q", row.args, r.fault, r.out, row.out)
		}
		if row.err != "" && (r.fault == nil || !strings.Contains(r.fault.Error(), row.err) || !strings.Contains(hintText(r.fault), row.hint)) {
			t.Errorf("%s < %s: %v, hint %q; want %q", row.args, row.in, r.fault, hintText(r.fault), row.err)
		}
	}
}
