package organizations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestAuthCheck checks that authcheck answers as the routes do, and refuses what it does not know.
func TestAuthCheck(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	east, west := w.east.ID.String(), w.west.ID.String()
	for _, row := range []struct {
		p                           person
		resource, action, org, user string
		want                        bool
	}{
		{w.ada, "template", "create", east, "", true},
		{w.ada, "template", "create", west, "", false},
		{w.ada, "template", "create", "", "", false},
		{w.olga, "template", "create", "", "", true},
		{w.olga, "workspace", "ssh", east, w.User("mia").String(), false},
		{w.mia, "workspace", "ssh", east, "me", true},
		{w.mia, "workspace", "create", east, "me", true},
		{w.out, "workspace", "create", east, "me", false},
		{w.eve, "organization_member", "update", east, "", true},
		{w.eve, "assign_org_role", "create", east, "", false},
		{w.una, "user", "create", "", "", true},
		{w.ada, "user", "create", "", "", false},
		{w.ada, "workspace_state", "read", east, "", false},
		{w.ada, "organization", "create", "", "", false},
		{w.mia, "user_secret", "read", "", "me", true},
		{w.mia, "user_secret", "read", "", w.User("ada").String(), false},
		{w.ada, "user_secret", "update", "", w.User("mia").String(), false},
		{w.ada, "audit_log", "read", east, "", true},
		{w.ada, "connection_log", "read", west, "", false},
		{w.mia, "audit_log", "read", east, "", false},
	} {
		req := sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{"q": {Action: row.action, Object: sdk.AuthorizationObject{ResourceType: row.resource, OrganizationID: row.org, OwnerID: row.user}}}}
		if got := call[sdk.AuthorizationResponse](row.p, 200, "POST", "authcheck", req)["q"]; got != row.want {
			t.Errorf("%s: %s %s in %q of %q: got %v", row.p.name, row.action, row.resource, row.org, row.user, got)
		}
	}
	anywhere := sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{"q": {Action: "create", Object: sdk.AuthorizationObject{ResourceType: "template", AnyOrgOwner: true}}}}
	if !call[sdk.AuthorizationResponse](w.ada, 200, "POST", "authcheck", anywhere)["q"] || call[sdk.AuthorizationResponse](w.mia, 200, "POST", "authcheck", anywhere)["q"] {
		t.Error("any_org is wrong")
	}
	for _, bad := range []sdk.AuthorizationCheck{
		{Action: "fly", Object: sdk.AuthorizationObject{ResourceType: "template"}},
		{Action: "read", Object: sdk.AuthorizationObject{ResourceType: "nosuch"}},
		{Action: "read", Object: sdk.AuthorizationObject{ResourceType: "template", OrganizationID: "x"}},
		{Action: "read", Object: sdk.AuthorizationObject{ResourceType: "provisioner_daemon", ResourceID: uuid.NewString()}},
	} {
		w.ada.want(400, "POST", "authcheck", sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{"q": bad}})
	}
	missing := sdk.AuthorizationCheck{Action: "read", Object: sdk.AuthorizationObject{ResourceType: "workspace", ResourceID: uuid.NewString()}}
	if call[sdk.AuthorizationResponse](w.olga, 200, "POST", "authcheck", sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{"q": missing}})["q"] {
		t.Error("an object that does not exist may be read")
	}
}

// TestAuthCheckKnowsTheTable: there is a word for every resource and action of the permission table.
func TestAuthCheckKnowsTheTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for page := range slices.Chunk(rbac.Rows(), 100) {
		req := sdk.AuthorizationRequest{Checks: sdk.Map[sdk.AuthorizationCheck]{}}
		for _, row := range page {
			resource := strings.ToLower(strings.ReplaceAll(string(row.Resource), " ", "_"))
			req.Checks[resource+" "+string(row.Action)] = sdk.AuthorizationCheck{Action: string(row.Action), Object: sdk.AuthorizationObject{ResourceType: resource}}
		}
		if got := call[sdk.AuthorizationResponse](w.mia, 200, "POST", "authcheck", req); len(got) != len(req.Checks) {
			t.Errorf("%d answers to %d questions", len(got), len(req.Checks))
		}
	}
}

// TestAuditorsPermissionsHaveWords: the built-in auditors list what they read, and a custom role can contain it.
func TestAuditorsPermissionsHaveWords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, role := range call[[]sdk.AssignableRole](w.ada, 200, "GET", "organizations/east/members/roles", nil) {
		var words []string
		for _, p := range role.OrganizationPermissions {
			words = append(words, p.ResourceType+"."+p.Action)
		}
		has := slices.Contains(words, "audit_log.read") && slices.Contains(words, "connection_log.read")
		if want := role.Name == rbac.RoleOrganizationAdmin || role.Name == rbac.RoleOrganizationAuditor; has != want {
			t.Errorf("%s: %q, reads the logs: %v, want %v", role.Name, words, has, want)
		}
	}
	w.mia.want(403, "GET", "audit", nil)
	w.ada.want(200, "POST", "organizations/east/members/roles", custom("reader", "audit_log.read", "connection_log.read"))
	w.ada.want(200, "PUT", "organizations/east/members/mia/roles", roles{Roles: []string{"reader"}})
	logs := call[sdk.AuditLogsResponse](w.mia, 200, "GET", "audit", nil)
	if len(logs.AuditLogs) == 0 {
		t.Error("the role shows nothing of its organization's audit log")
	}
	for _, l := range logs.AuditLogs {
		if l.OrganizationID != w.east.ID {
			t.Errorf("the role of east shows a row of another organization: %s %s", l.Action, l.ResourceType)
		}
	}
	w.mia.want(200, "GET", "connectionlog", nil)
}
