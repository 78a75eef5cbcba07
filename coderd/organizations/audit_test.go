package organizations_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// events returns the rows that a person reads in the audit log, the oldest first: actor, action, kind, object and organization.
func (p person) events(q string) (out []string, rows []sdk.AuditLog) {
	p.T.Helper()
	rows = call[sdk.AuditLogsResponse](p, 200, "GET", "audit?limit=1000&q="+url.QueryEscape(q), nil).AuditLogs
	slices.Reverse(rows)
	for _, row := range rows {
		org := ""
		if row.Organization != nil {
			org = row.Organization.Name
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %d %s", row.Actor, row.Action, row.ResourceType, row.ResourceTarget, row.StatusCode, org)))
	}
	return out, rows
}

// TestChangesAreRecorded checks what changes of organizations, members and roles leave in the audit log, and who reads it.
func TestChangesAreRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const list = "organizations/east/members/roles"
	w.olga.want(200, "PUT", "organizations/east/members/mia/roles", roles{Roles: []string{"organization-auditor"}})
	_, rows := w.olga.events("")
	begin := len(rows)

	w.ada.want(200, "PATCH", "organizations/east", sdk.UpdateOrganizationRequest{DisplayName: "Orient"})
	w.una.want(200, "POST", "organizations/east/members/out", nil)
	w.ada.want(409, "POST", "organizations/east/members/out", nil) // leaves nothing
	w.ada.want(200, "POST", list, custom("builder", "template.read"))
	w.ada.want(200, "PUT", list, custom("builder", "template.create", "template.read"))
	w.ada.want(200, "PUT", "organizations/east/members/out/roles", roles{Roles: []string{"builder"}})
	w.eve.want(403, "DELETE", list+"/builder", nil)
	w.ada.want(204, "DELETE", list+"/builder", nil)
	crew := call[sdk.Group](w.ada, 201, "POST", "organizations/east/groups", sdk.CreateGroupRequest{Name: "crew"})
	w.ada.want(200, "PATCH", "groups/"+crew.ID.String(), sdk.PatchGroupRequest{AddUsers: []string{w.User("out").String()}})
	w.ada.want(204, "DELETE", "organizations/east/members/out", nil)
	w.una.want(201, "POST", "users", sdk.CreateUserRequest{Email: "n@example.com", Username: "new-one", LoginType: "none", OrganizationIDs: []uuid.UUID{w.west.ID, w.west.ID}})
	w.olga.want(200, "DELETE", "organizations/west", nil)
	w.olga.want(201, "POST", "organizations", sdk.CreateOrganizationRequest{Name: "north"})

	got, rows := w.olga.events("")
	got, rows = got[begin:], rows[begin:]
	want := []string{
		"ada write organization east 200 east",
		"una create organization_member out 201 east",
		"ada create custom_role builder 201 east",
		"ada write custom_role builder 200 east",
		"ada write organization_member out 200 east",
		"eve delete custom_role builder 403",
		"ada write organization_member out 200 east",
		"ada delete custom_role builder 200 east",
		"ada create group crew 201 east",
		"ada write group crew 200 east",
		"ada delete organization_member out 200 east",
		"una create organization_member new-one 201 west",
		"una create user new-one 201",
		"olga delete organization west 200 west",
		"olga create organization north 201 north",
		"olga create organization_member olga 201 north",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the audit log has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	field := func(i int, name, before, after string) {
		t.Helper()
		if f := rows[i].Diff[name]; fmt.Sprint(f.Old) != before || fmt.Sprint(f.New) != after {
			t.Errorf("%s: %s changed from %v to %v, want from %s to %s", got[i], name, f.Old, f.New, before, after)
		}
	}
	field(0, "display_name", "Far East", "Orient")
	field(4, "roles", "[]", "[builder]")
	field(6, "roles", "[builder]", "[]")
	field(10, "groups", "[crew]", "[]")
	if _, ok := rows[3].Diff["powers"]; !ok || rows[1].ResourceID != w.User("out") || !rows[13].IsDeleted || rows[0].IsDeleted {
		t.Errorf("rows %+v, %+v, %+v", rows[3].Diff, rows[1].ResourceID, rows[13])
	}

	at := "/organizations/" + w.east.ID.String()
	for i, link := range map[int]string{0: at, 1: at + "/members", 3: at + "/roles/builder", 10: at + "/members"} {
		if rows[i].ResourceLink != link {
			t.Errorf("%s: the link is %q, want %q", got[i], rows[i].ResourceLink, link)
		}
	}

	// An organization's auditor reads the rows of that organization only; its other members read none.
	mine, _ := w.mia.events("resource_type:organization_member")
	if !slices.Contains(mine, want[4]) || slices.ContainsFunc(mine, func(row string) bool { return !strings.HasSuffix(row, " east") }) {
		t.Errorf("the auditor of east reads\n%s", strings.Join(mine, "\n"))
	}
	w.eve.want(403, "GET", "audit", nil)
}
