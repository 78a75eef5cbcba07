package users_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestDeployment(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	owner := a.first()
	nobody := a.nobody()
	info := call[sdk.BuildInfo](nobody, 200, "GET", "buildinfo", nil)
	if !strings.HasPrefix(info.Version, "v2.") || info.DashboardURL != accessURL || uuid.Validate(info.DeploymentID) != nil {
		t.Errorf("buildinfo: %+v", info)
	}
	if again := call[sdk.BuildInfo](nobody, 200, "GET", "buildinfo", nil); again.DeploymentID != info.DeploymentID {
		t.Error("the deployment's id changes")
	}
	if methods := call[sdk.AuthMethods](nobody, 200, "GET", "users/authmethods", nil); !methods.Password.Enabled {
		t.Errorf("authmethods: %+v", methods)
	}
	nobody.want(200, "GET", "", nil)
	nobody.want(200, "GET", "appearance", nil)
	features := call[sdk.Entitlements](owner, 200, "GET", "entitlements", nil).Features
	for name, want := range map[string]bool{
		"access_control": true, "external_provisioner_daemons": true, "multiple_external_auth": true, "control_shared_ports": true,
		"audit_log": true, "connection_log": true, "multiple_organizations": true, "custom_roles": true, "high_availability": true, "scim": true, "template_rbac": true,
		"workspace_proxy": true, "advanced_template_scheduling": true, "workspace_prebuilds": true, "browser_only": false,
	} {
		f, ok := features[name]
		if !ok || f.Enabled != want || (f.Entitlement == "entitled") != want || !want && f.Entitlement != "not_entitled" {
			t.Errorf("feature %s: %+v, want %t", name, f, want)
		}
	}
	if text := owner.want(200, "GET", "experiments", nil); strings.TrimSpace(string(text)) != "[]" {
		t.Errorf("experiments: %s", text)
	}
	if ssh := string(owner.want(200, "GET", "deployment/ssh", nil)); !strings.Contains(ssh, `"ssh_config_options":{}`) || !strings.Contains(ssh, `"hostname_suffix":"coder"`) {
		t.Errorf("deployment/ssh: %s", ssh)
	}
	org := call[sdk.Organization](owner, 200, "GET", "organizations/default", nil)
	if !org.IsDefault || org.Name != "default" {
		t.Errorf("organization: %+v", org)
	}
	for _, path := range []string{"organizations", "users/me/organizations"} {
		if list := call[[]sdk.Organization](owner, 200, "GET", path, nil); len(list) != 1 || list[0].ID != org.ID {
			t.Errorf("%s: %+v", path, list)
		}
	}
	call[sdk.Organization](owner, 200, "GET", "users/me/organizations/"+org.ID.String(), nil)
	owner.want(404, "GET", "organizations/another", nil)
	if members := call[[]sdk.OrganizationMember](owner, 200, "GET", "organizations/default/members", nil); len(members) != 1 || members[0].Email != "admin@example.com" {
		t.Errorf("members: %+v", members)
	}
	owner.want(404, "GET", "organizations/default/members/nobody", nil)
}

func TestRoles(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	admin := a.first()
	for _, p := range []person{admin, admin.add("ann")} {
		roles := call[[]sdk.AssignableRole](p, 200, "GET", "users/roles", nil)
		var names []string
		for _, role := range roles {
			names = append(names, role.Name)
		}
		if !slices.Equal(names, []string{"owner", "user-admin", "template-admin", "auditor"}) || roles[0].Assignable != (p.id == admin.id) {
			t.Errorf("%s: %+v", p.name, roles)
		}
	}
	a.nobody().want(401, "GET", "users/roles", nil)
}
