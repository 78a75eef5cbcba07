package groups_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/groups"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func ptr[T any](v T) *T { return &v }

func names(users []sdk.ReducedUser) string {
	var all []string
	for _, u := range users {
		all = append(all, u.Username)
	}
	return strings.Join(all, " ")
}

// TestGroups: an administrator's way through all routes, and what members see of the result.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga, ann := s.As("olga"), s.As("ann")
	annID, bobID := s.User("ann"), s.User("bob")
	g, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs", DisplayName: "Developers", AvatarURL: "/icon/dev.svg", QuotaAllowance: 7})
	if err != nil || g.Name != "devs" || g.QuotaAllowance != 7 || g.Source != sdk.GroupSourceUser || g.OrganizationID != s.Org || g.OrganizationName == "" || g.AvatarURL != "/icon/dev.svg" {
		t.Fatalf("created: %+v, %v", g, err)
	}
	if _, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "DEVS"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("name taken: %v, want conflict", err)
	}
	g, err = olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{AddUsers: []string{annID.String(), bobID.String()}, Name: "people", DisplayName: ptr(""), QuotaAllowance: ptr(0)})
	if err != nil || names(g.Members) != "ann bob" || g.TotalMemberCount != 2 || g.Name != "people" || g.DisplayName != "" || g.QuotaAllowance != 0 || g.AvatarURL != "/icon/dev.svg" {
		t.Fatalf("changed: %+v, %v", g, err)
	}
	if _, err := olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{AddUsers: []string{annID.String()}}); err != nil {
		t.Errorf("added twice: %v", err)
	}
	// Members read groups, without the addresses of others.
	seen, err := ann.GroupByName(t.Context(), sdk.DefaultOrganization, "People")
	if err != nil || seen.ID != g.ID || seen.Members[0].Email != "ann@example.com" || seen.Members[1].Email != "" {
		t.Errorf("as a member sees it: %+v, %v", seen, err)
	}
	page, err := ann.GroupMembers(t.Context(), g.ID, 1, 1)
	if err != nil || page.Count != 2 || names(page.Users) != "bob" {
		t.Errorf("second page: %+v, %v", page, err)
	}
	all, err := ann.Groups(t.Context(), sdk.GroupsQuery{})
	if err != nil || len(all) != 2 || all[0].Name != sdk.Everyone || all[0].ID != s.Org || all[0].TotalMemberCount < 3 {
		t.Errorf("list: %+v, %v", all, err)
	}
	for query, want := range map[sdk.GroupsQuery]int{
		{Search: "PEOP"}: 1, {Search: `search:"everyone"`}: 1, {Search: "nosuch"}: 0,
		{HasMember: "bob"}: 2, {HasMember: "olga"}: 1, {HasMember: "nosuch"}: 0, {Organization: sdk.DefaultOrganization}: 2, {Organization: "nosuch"}: 0,
	} {
		if found, err := ann.Groups(t.Context(), query); err != nil || len(found) != want {
			t.Errorf("%+v: %d groups, %v; want %d", query, len(found), err, want)
		}
	}
	if _, err := ann.Groups(t.Context(), sdk.GroupsQuery{Search: "color:red"}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("unknown search: %v, want invalid", err)
	}
	if g, err = olga.PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{RemoveUsers: []string{bobID.String()}}); err != nil || names(g.Members) != "ann" {
		t.Errorf("removed: %+v, %v", g, err)
	}
	// Who leaves the organization leaves its groups, and does not return to them.
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, annID)
	s.Exec(`INSERT INTO organization_members (organization_id, user_id) VALUES ($1, $2)`, s.Org, annID)
	if g, err = olga.Group(t.Context(), g.ID); err != nil || len(g.Members) != 0 {
		t.Errorf("returned to the organization: %+v, %v", g, err)
	}
	if err := olga.DeleteGroup(t.Context(), g.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := olga.Group(t.Context(), g.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted: %v, want not found", err)
	}
}

// TestGroupsAreTheAdministrators: members change no group, and those of no organization see none.
func TestGroupsAreTheAdministrators(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	g, err := s.As("olga").CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs"})
	if err != nil {
		t.Fatal(err)
	}
	me := s.User("ann").String()
	for _, user := range []string{"ann", "tom"} {
		_, create := s.As(user).CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "mine"})
		_, join := s.As(user).PatchGroup(t.Context(), g.ID, sdk.PatchGroupRequest{AddUsers: []string{me}})
		for what, err := range map[string]error{"create": create, "join": join, "delete": s.As(user).DeleteGroup(t.Context(), g.ID)} {
			if fault.CodeOf(err) != fault.Forbidden {
				t.Errorf("%s by %s: %v, want forbidden", what, user, err)
			}
		}
	}
	s.User("eve")
	s.Exec(`DELETE FROM organization_members WHERE user_id = $1`, s.User("eve"))
	eve := s.As("eve")
	if all, err := eve.Groups(t.Context(), sdk.GroupsQuery{}); err == nil && len(all) > 0 {
		t.Errorf("a stranger sees %d groups", len(all))
	}
	_, byID := eve.Group(t.Context(), g.ID)
	_, byName := eve.GroupByName(t.Context(), sdk.DefaultOrganization, "devs")
	_, members := eve.GroupMembers(t.Context(), g.ID, 0, 0)
	for what, err := range map[string]error{"by id": byID, "by name": byName, "members": members} {
		if code := fault.CodeOf(err); code != fault.NotFound && code != fault.Forbidden {
			t.Errorf("a stranger reads a group %s: %v", what, err)
		}
	}
}

// TestEveryoneStays: the group of all members changes in nothing but its quota.
func TestEveryoneStays(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga, ann := s.As("olga"), s.User("ann").String()
	for what, req := range map[string]sdk.PatchGroupRequest{
		"add": {AddUsers: []string{ann}}, "remove": {RemoveUsers: []string{ann}}, "rename": {Name: "all"}, "display": {DisplayName: ptr("All")}, "avatar": {AvatarURL: ptr("/x.svg")},
	} {
		if _, err := olga.PatchGroup(t.Context(), s.Org, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", what, err)
		}
	}
	if err := olga.DeleteGroup(t.Context(), s.Org); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("delete: %v, want invalid", err)
	}
	g, err := olga.PatchGroup(t.Context(), s.Org, sdk.PatchGroupRequest{QuotaAllowance: ptr(12)})
	if err != nil || g.QuotaAllowance != 12 || !strings.Contains(names(g.Members), "ann") {
		t.Errorf("quota: %+v, %v", g, err)
	}
}

// TestBadGroups: bad input is refused with its rule, and nothing is stored.
func TestBadGroups(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga := s.As("olga")
	for _, req := range []sdk.CreateGroupRequest{
		{Name: ""}, {Name: " devs"}, {Name: "devs\n"}, {Name: "a\u202eb"}, {Name: "\xff"}, {Name: strings.Repeat("a", 256)},
		{Name: strings.Repeat("ü", 128)}, {Name: "."}, {Name: ".."}, {Name: uuid.NewString()}, {Name: "x", QuotaAllowance: -1}, {Name: "x", QuotaAllowance: 1 << 40},
		{Name: "x", AvatarURL: "javascript:alert(1)"}, {Name: "x", AvatarURL: "//evil.example.com/x"}, {Name: "x", DisplayName: "a\nb"},
	} {
		err := second(olga.CreateGroup(t.Context(), sdk.DefaultOrganization, req))
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) == 0 {
			t.Errorf("%+v: %v, want invalid with its rule", req, err)
		}
	}
	for _, name := range []string{"Entwickler & Freunde", "開発者", "a/b:c@d (e)", strings.Repeat("a", 255), "%2e", "?x=1#y"} {
		g, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: name})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if got, err := olga.GroupByName(t.Context(), sdk.DefaultOrganization, name); err != nil || got.ID != g.ID {
			t.Errorf("%q by name: %+v, %v", name, got, err)
		}
	}
	g, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs"})
	if err != nil {
		t.Fatal(err)
	}
	ann := s.User("ann").String()
	for what, req := range map[string]sdk.PatchGroupRequest{
		"stranger": {AddUsers: []string{ann, uuid.NewString()}}, "no id": {AddUsers: []string{"ann"}}, "both": {AddUsers: []string{ann}, RemoveUsers: []string{ann}},
		"quota": {AddUsers: []string{ann}, QuotaAllowance: ptr(-1)}, "too many": {AddUsers: make([]string, 1001)},
	} {
		if _, err := olga.PatchGroup(t.Context(), g.ID, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", what, err)
		}
	}
	if g, err = olga.Group(t.Context(), g.ID); err != nil || len(g.Members) != 0 {
		t.Errorf("after refused changes: %+v, %v", g, err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestRoutesDeclarePermissions(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	for _, route := range s.Mux.Routes() {
		if strings.Contains(route.Pattern, "/groups") && (!route.Permission.Declared() || route.Permission.IsPublic()) {
			t.Errorf("%s: %s", route.Pattern, route.Permission)
		}
	}
	resp, err := http.Get(s.URL.String() + "/api/v2/groups")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a session: %s", resp.Status)
	}
}

// FuzzCheckName: a valid name is text that a terminal and a page can show, and a path can contain.
func FuzzCheckName(f *testing.F) {
	for _, name := range []string{"devs", "", "..", "a\x00", "開発者", " x", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if groups.CheckName(name) != nil {
			return
		}
		if !utf8.ValidString(name) || len(name) == 0 || len(name) > 255 || strings.ContainsFunc(name, unicode.IsControl) || name == "." || name == ".." {
			t.Errorf("%q is accepted", name)
		}
	})
}
