package audit_test

import (
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestGroupsAreRecorded checks the rows of a group's creation, change and deletion, and that a refused change leaves none.
func TestGroupsAreRecorded(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga, ann := s.As("olga"), s.User("ann").String()
	g, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs", QuotaAllowance: 10})
	if err != nil {
		t.Fatal(err)
	}
	created := one(t, s, "resource_type:group action:create")
	if created.ResourceID != g.ID || created.ResourceTarget != "devs" || created.Diff["quota_allowance"].New != 10.0 || created.Organization == nil || created.Organization.ID != s.Org {
		t.Errorf("creation: %+v", created)
	}
	if want := "/organizations/" + s.Org.String() + "/groups/" + g.ID.String(); created.ResourceLink != want {
		t.Errorf("the link is %q, want %q", created.ResourceLink, want)
	}
	if _, err := olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{Name: "ops", AddUsers: []string{uuid.NewString()}}); fault.CodeOf(err) != fault.Invalid {
		t.Fatalf("a stranger becomes a member: %v", err)
	}
	if rows := find(t, s, "resource_type:group action:write"); len(rows) != 0 {
		t.Errorf("a refused change left %+v", rows)
	}
	if _, err := olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{Name: "ops", AddUsers: []string{ann}}); err != nil {
		t.Fatal(err)
	}
	changed := one(t, s, "resource_type:group action:write")
	if changed.ResourceTarget != "devs" || changed.Diff["name"] != (sdk.AuditDiffField{Old: "devs", New: "ops"}) || changed.Diff["members_add"].New != ann || len(changed.Diff) != 2 {
		t.Errorf("change: %+v", changed)
	}
	if changed.Description != "olga changed members and name of group devs" || len(changed.Names) != 1 || changed.Names[ann] != "ann" {
		t.Errorf("the change reads %q, with the names %v", changed.Description, changed.Names)
	}
	if err := olga.DeleteGroup(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	if deleted := one(t, s, "resource_type:group action:delete"); deleted.ResourceTarget != "ops" || deleted.ResourceID != g.ID {
		t.Errorf("deletion: %+v", deleted)
	}
}

// TestSharingIsRecorded checks the rows of templates, workspaces and ports that are shared.
func TestSharingIsRecorded(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	template := s.Template("docker", nil)
	ws := s.Workspace("ann", "dev", template.ID)
	s.Daemon().Next().Finish(coderdtest.Built("state", coderdtest.Resource(uuid.New())))
	ann, bob := s.As("ann"), s.User("bob").String()

	if err := ann.UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob: sdk.RoleUse}}); err != nil {
		t.Fatal(err)
	}
	row := one(t, s, "resource_type:workspace action:write")
	if now, ok := row.Diff["sharing"].New.(map[string]any); !ok || now[bob] != sdk.RoleUse || row.User == nil || row.User.Username != "ann" {
		t.Errorf("shared workspace: %+v", row)
	}
	if err := ann.DeleteWorkspaceACL(t.Context(), ws.ID); err != nil {
		t.Fatal(err)
	}
	port := sdk.UpsertPortShareRequest{AgentName: "main", Port: 8080, ShareLevel: sdk.ShareOrganization}
	if _, err := ann.SharePort(t.Context(), ws.ID, port); err != nil {
		t.Fatal(err)
	}
	port.ShareLevel = sdk.SharePublic
	if _, err := ann.SharePort(t.Context(), ws.ID, port); err != nil {
		t.Fatal(err)
	}
	if err := ann.DeletePortShare(t.Context(), ws.ID, sdk.DeletePortShareRequest{AgentName: "main", Port: 8080}); err != nil {
		t.Fatal(err)
	}
	rows := find(t, s, "resource_type:workspace action:write") // the newest first
	want := []sdk.AuditDiffField{
		{Old: "main:8080 public http", New: ""}, {Old: "main:8080 organization http", New: "main:8080 public http"}, {Old: "", New: "main:8080 organization http"},
	}
	if len(rows) != 5 {
		t.Fatalf("got %d rows of the workspace, want 5: %+v", len(rows), rows)
	}
	for i, field := range want {
		if rows[i].Diff["port_share"] != field || rows[i].ResourceTarget != "dev" {
			t.Errorf("row %d: got %+v, want %+v", i, rows[i].Diff, field)
		}
	}

	level := sdk.ShareOwner
	private := sdk.UpdateTemplateRequest{DisableEveryoneGroupAccess: true}
	private.MaxPortShareLevel = &level
	if _, err := s.As("tom").UpdateTemplate(t.Context(), template.ID, private); err != nil {
		t.Fatal(err)
	}
	changed := one(t, s, "resource_type:template action:write")
	before, _ := changed.Diff["sharing"].Old.(map[string]any)
	after, ok := changed.Diff["sharing"].New.(map[string]any)
	if before[s.Org.String()] != sdk.RoleUse || !ok || len(after) != 0 || changed.Diff["max_port_share_level"] != (sdk.AuditDiffField{Old: "public", New: "owner"}) {
		t.Errorf("private template: %+v", changed.Diff)
	}
	if want := "/templates/" + template.ID.String(); changed.ResourceLink != want {
		t.Errorf("the link is %q, want %q", changed.ResourceLink, want)
	}
	if err := s.As("tom").UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{bob: sdk.RoleAdmin}}); err != nil {
		t.Fatal(err)
	}
	if rows := find(t, s, "resource_type:template action:write"); len(rows) != 2 {
		t.Errorf("got %d changes of the template, want 2", len(rows))
	}
}
