package rbac_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/rbac"
)

var update = flag.Bool("update", false, "write docs/roles.md")

const rolesIntro = `# Who may do what

Generated from the permission table (coderd/rbac). Regenerate it with ` + "`go test ./coderd/rbac -run RoleTable -update`" + `.

Each row lists what suffices for an action. Roles whose names begin with ` + "`organization-`" + ` count in their own organization. The
owner of an object must be a member of its organization. A custom role adds actions on all objects of a kind in its organization.
No role reaches into other users' workspaces or secrets, or shares them, not even an owner's of the deployment: only ownership and sharing count there
([sharing](sharing.md#who-decides)). To ` + "`withdraw`" + ` is to see with whom a workspace is shared, to end that, and to lower roles and levels. The last column shows
what a token in a workspace cannot do, regardless of the owner.
Owners create tokens only for themselves and for accounts of the login type none, such as service accounts: a token opens its user's workspaces.
To change another user's account, an actor needs every permission that the account's roles have. The same holds for giving or taking a role (coderd, TestPowersCannotGrow).
Only owners and user admins of the deployment add members to an organization at once. All others invite users, who accept or decline.
Creating or starting another user's workspace gives the template none of that user's credentials: that requires the user's [consent to the template](secrets.md#consent-to-a-template).
A test sends requests for every cell to a server (coderd, TestEveryCell).

| object | action | who | not with a workspace's token |
|---|---|---|---|
`

// TestRoleTable checks that docs/roles.md shows the permission table.
func TestRoleTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(rolesIntro)
	for _, row := range rbac.Rows() {
		personal := ""
		if row.Personal {
			personal = "yes"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", row.Resource, row.Action, strings.Join(row.Relations, ", "), personal)
	}
	const page = "../../docs/roles.md"
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != b.String() {
		t.Errorf("docs/roles.md differs from the table (%v), run: go test ./coderd/rbac -run RoleTable -update", err)
	}
}

// TestSharingPage checks that docs/sharing.md says about workspaces what the permission table says.
func TestSharingPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/sharing.md")
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{rbac.RelationSelf, rbac.RelationAdmin, rbac.RelationUse, rbac.RoleOwner, rbac.RoleOrganizationAdmin}
	for words, action := range map[string]rbac.Action{
		"connect, open apps": rbac.Connect, "share it or a port, raise a role or level": rbac.Share,
		"see with whom it is shared, withdraw, lower": rbac.Withdraw, "delete": rbac.Delete, "transfer": rbac.Transfer, "change its settings": rbac.Update,
	} {
		rows := rbac.Rows()
		i := slices.IndexFunc(rows, func(r rbac.Row) bool { return r.Power == rbac.Power{Action: action, Resource: rbac.Workspace} })
		line := "| " + words + " |"
		for _, column := range columns {
			if slices.Contains(rows[i].Relations, column) || column == rbac.RelationAdmin && slices.Contains(rows[i].Relations, rbac.RelationUse) {
				line += " yes |"
			} else {
				line += " no |"
			}
		}
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/sharing.md lacks the row that the permission table means: %s", line)
		}
	}
}

// TestRowsHold checks every role against every row of the documented table.
func TestRowsHold(t *testing.T) {
	t.Parallel()
	for _, row := range rbac.Rows() {
		for _, name := range rbac.Relations() {
			actor := rbac.Actor{UserID: self, Memberships: []rbac.Membership{{Organization: org}}}
			switch {
			case rbac.IsSiteRole(name):
				actor = rbac.Actor{UserID: self, Roles: []string{name}}
			case rbac.IsOrganizationRole(name):
				actor.Memberships[0].Roles = []string{name}
			case name != rbac.RelationMember:
				continue // ownership and sharing have tests of their own
			}
			listed := slices.Contains(row.Relations, name) || rbac.IsOrganizationRole(name) && slices.Contains(row.Relations, rbac.RelationMember)
			if got := actor.Holds(row.Power, org); got != listed {
				t.Errorf("%s: %s %s: got %v, want %v", name, row.Action, row.Resource, got, listed)
			}
			if elsewhere := actor.Holds(row.Power, uuid.New()); elsewhere && !rbac.IsSiteRole(name) && row.Resource != rbac.File {
				t.Errorf("%s: %s %s in another organization", name, row.Action, row.Resource)
			}
		}
	}
}
