package coderd_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
)

// TestNewWorkspacesRevealNoUsers checks that creating a workspace for another user does not tell which users exist, or that they are
// suspended, to those who may not create it.
func TestNewWorkspacesRevealNoUsers(t *testing.T) {
	t.Parallel()
	w := newCells(t)
	w.User("suspended")
	w.join(w.east, "suspended")
	w.Exec(`UPDATE users SET status = 'suspended' WHERE username = 'suspended'`)
	create := func(as, target string) (int, string) {
		return w.send(as, "POST", "/api/v2/users/"+target+"/workspaces", fmt.Sprintf(`{"name": %q, "template_id": %q}`, w.next(), w.standing["open"]))
	}
	for _, as := range []string{stranger, w.named(rbac.RelationMember), w.named(rbac.RelationAdmin)} {
		status, nothing := create(as, "nosuch")
		if status != 404 {
			t.Errorf("%s: for an unknown user: %d %s", as, status, nothing)
		}
		for _, target := range []string{w.owner(), "suspended"} {
			if s, body := create(as, target); s != status || body != nothing {
				t.Errorf("%s: for %s: %d %s, want %d %s", as, target, s, body, status, nothing)
			}
		}
	}
	if status, body := create(w.named(rbac.RoleOrganizationAdmin), "suspended"); status != 409 {
		t.Errorf("an organization's admin: %d %s", status, body)
	}
	if status, body := create(w.owner(), "me"); status != 201 {
		t.Errorf("the user: %d %s", status, body)
	}
}

// TestVersionsOfOtherOrganizations checks that ids of another organization in a body give no access to what they name.
func TestVersionsOfOtherOrganizations(t *testing.T) {
	t.Parallel()
	w := newCells(t)
	wtpl, _ := w.template(w.west, rbac.Sharing{w.west: rbac.LevelUse}, w.file())
	loose, mine := w.version(w.east, "", w.file()), w.version(w.west, "", w.fileOf(outsider))
	file := w.file()
	wgroup := w.group(w.west)
	admin := w.named(rbac.RoleOrganizationAdmin)
	for what, r := range map[string]struct{ method, path, body string }{
		"a template of another organization's version":   {"POST", "organizations/west/templates", fmt.Sprintf(`{"name": "stolen", "template_version_id": %q}`, loose)},
		"another organization's version as active one":   {"PATCH", "templates/" + wtpl + "/versions", fmt.Sprintf(`{"id": %q}`, loose)},
		"the version of another template as active one":  {"PATCH", "templates/" + wtpl + "/versions", fmt.Sprintf(`{"id": %q}`, w.standing["version"])},
		"a version of another user's file":               {"POST", "organizations/west/templateversions", fmt.Sprintf(`{"file_id": %q, "storage_method": "file", "provisioner": "terraform"}`, file)},
		"a version of another organization's template":   {"POST", "organizations/west/templateversions", fmt.Sprintf(`{"template_id": %q, "file_id": %q, "storage_method": "file", "provisioner": "terraform"}`, w.standing["open"], w.fileOf(outsider))},
		"a template shared with a group elsewhere":       {"PATCH", "templates/" + wtpl + "/acl", fmt.Sprintf(`{"group_perms": {%q: "use"}}`, w.standing["group"])},
		"a template shared with Everyone elsewhere":      {"PATCH", "templates/" + wtpl + "/acl", fmt.Sprintf(`{"group_perms": {%q: "use"}}`, w.east)},
		"a template shared with a user elsewhere":        {"PATCH", "templates/" + wtpl + "/acl", fmt.Sprintf(`{"user_perms": {%q: "use"}}`, w.standing["selfid"])},
		"a group with a user of another organization":    {"PATCH", "groups/" + wgroup, fmt.Sprintf(`{"add_users": [%q]}`, w.standing["selfid"])},
		"another organization's group, by its own path":  {"PATCH", "groups/" + w.standing["group"], fmt.Sprintf(`{"add_users": [%q]}`, w.User(outsider))},
		"a workspace of another organization's template": {"POST", "organizations/west/members/me/workspaces", fmt.Sprintf(`{"name": "w", "template_id": %q}`, w.standing["open"])},
		"a workspace of another organization's version":  {"POST", "organizations/west/members/me/workspaces", fmt.Sprintf(`{"name": "w", "template_version_id": %q}`, w.standing["openversion"])},
		"a job of another organization under its own":    {"GET", "organizations/west/provisionerjobs/" + w.standing["job"], ""},
		"a canceled job of another organization":         {"PATCH", "organizations/west/provisionerjobs/" + w.standing["job"] + "/cancel", ""},
		"a key of another organization":                  {"DELETE", "organizations/west/provisionerkeys/standing", ""},
		"a role of another organization":                 {"PUT", "organizations/west/members/" + outsider + "/roles", `{"roles": ["standing"]}`},
		"a file of another organization's template":      {"GET", "files/" + w.standing["file"], ""},
	} {
		status, body := w.send(outsider, r.method, "/api/v2/"+r.path, r.body)
		if !denies(status) && status != 400 && status != 409 {
			t.Errorf("%s: %d %.300s", what, status, body)
		}
	}
	var organization uuid.UUID
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT organization_id FROM template_versions WHERE id = $1 AND template_id IS NULL`, loose).Scan(&organization); err != nil || organization != w.east {
		t.Errorf("the version of east belongs to %s, %v", organization, err)
	}
	// The same with what is their own.
	for what, r := range map[string]struct{ as, method, path, body string }{
		"own version":          {outsider, "POST", "organizations/west/templates", fmt.Sprintf(`{"name": "own", "template_version_id": %q}`, mine)},
		"version of east":      {admin, "POST", "organizations/east/templates", fmt.Sprintf(`{"name": "own", "template_version_id": %q}`, loose)},
		"own file":             {outsider, "POST", "organizations/west/templateversions", fmt.Sprintf(`{"template_id": %q, "file_id": %q, "storage_method": "file", "provisioner": "terraform"}`, wtpl, w.fileOf(outsider))},
		"shared with Everyone": {outsider, "PATCH", "templates/" + wtpl + "/acl", fmt.Sprintf(`{"group_perms": {%q: "use"}}`, w.west)},
		"own workspace":        {outsider, "POST", "organizations/west/members/me/workspaces", fmt.Sprintf(`{"name": "w", "template_id": %q}`, wtpl)},
	} {
		if status, body := w.send(r.as, r.method, "/api/v2/"+r.path, r.body); status >= 300 {
			t.Errorf("%s: %d %.300s", what, status, body)
		}
	}
}

// TestDryRunsNeedUse checks that a dry run, which runs the template at the provisioner, needs the right to create workspaces from it.
func TestDryRunsNeedUse(t *testing.T) {
	t.Parallel()
	w := newCells(t)
	allowed := []string{rbac.RoleOwner, rbac.RoleTemplateAdmin, rbac.RoleOrganizationAdmin, rbac.RoleOrganizationTemplateAdmin, rbac.RelationUse, rbac.RelationAdmin}
	for _, a := range w.actors {
		status, body := w.send(a.name, "POST", "/api/v2/templateversions/"+w.standing["version"]+"/dry-run", `{"workspace_name": "x"}`)
		if got := status == 201; got != slices.Contains(allowed, a.relations0()) || !got && !denies(status) {
			t.Errorf("%s: dry run: %d %.200s", a.name, status, body)
		}
	}
}

// TestTokensWithListsOnSharing checks that a token whose allow-list has one workspace and one template shares no others.
func TestTokensWithListsOnSharing(t *testing.T) {
	t.Parallel()
	w := newCells(t)
	other := w.workspace(w.east, w.owner(), w.standing["open"], rbac.Sharing{})
	otpl, _ := w.template(w.east, w.shared, w.file())
	admin := w.named(rbac.RoleOrganizationAdmin)
	for _, c := range []struct{ user, scope, allow, mine, others string }{
		{w.owner(), "workspace:*", "workspace:" + other["ws"], "workspaces/" + other["ws"] + "/acl", "workspaces/" + w.standing["ws"] + "/acl"},
		{w.owner(), "workspace:*", "workspace:" + other["ws"], "workspaces/" + other["ws"] + "/port-share", "workspaces/" + w.standing["ws"] + "/port-share"},
		{admin, "template:*", "template:" + otpl, "templates/" + otpl + "/acl", "templates/" + w.standing["tpl"] + "/acl"},
	} {
		status, body := w.send(c.user, "POST", "/api/v2/users/me/keys/tokens", fmt.Sprintf(`{"scopes": [%q], "allow_list": [%q]}`, c.scope, c.allow))
		var made sdk.CreateTokenResponse
		if err := json.Unmarshal([]byte(body), &made); status != 201 || err != nil {
			t.Fatalf("token: %d %s", status, body)
		}
		method, change := "PATCH", fmt.Sprintf(`{"user_roles": {%[1]q: "use"}, "user_perms": {%[1]q: "use"}}`, w.User(w.named(rbac.RelationMember)))
		if strings.HasSuffix(c.mine, "port-share") {
			method, change = "POST", `{"agent_name": "main", "port": 8080, "share_level": "public"}`
		}
		for _, m := range []struct{ method, body string }{{"GET", ""}, {method, change}, {"DELETE", `{"agent_name": "main", "port": 8080}`}} {
			if m.method == "DELETE" && strings.HasPrefix(c.mine, "templates") {
				continue
			}
			if status, body := w.sendWith(made.Key, m.method, "/api/v2/"+c.others, m.body); !denies(status) {
				t.Errorf("%s with %s: %s %s: %d %.200s", c.user, c.allow, m.method, c.others, status, body)
			}
			if status, body := w.sendWith(made.Key, m.method, "/api/v2/"+c.mine, m.body); status >= 300 {
				t.Errorf("%s with %s: %s %s: %d %.200s", c.user, c.allow, m.method, c.mine, status, body)
			}
		}
	}
}

// TestRoleTakenDuringARequest checks that a request whose sender loses a role while its body arrives changes nothing, and that the request
// of another sender goes on.
func TestRoleTakenDuringARequest(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	// The body is sent once the server reads it, which is after it has checked who sends it.
	transport := &http.Transport{ExpectContinueTimeout: coderdtest.Patience}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	for _, name := range []string{"eve", "ada"} {
		s.Exec(`UPDATE organization_members SET roles = '{organization-admin}' WHERE user_id = $1`, s.User(name))
	}
	s.User("mia")
	s.User("bob")
	type answer struct {
		status int
		err    error
	}
	type slow struct {
		body io.WriteCloser
		done chan answer
	}
	begin := func(user, target string) slow {
		reader, writer := io.Pipe()
		req, err := http.NewRequestWithContext(t.Context(), "PUT", s.URL.String()+"/api/v2/organizations/default/members/"+target+"/roles", reader)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(sdk.SessionHeader, s.Token(user))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Expect", "100-continue")
		done := make(chan answer, 1)
		go func() {
			resp, err := client.Do(req)
			if err != nil {
				done <- answer{err: err}
				return
			}
			resp.Body.Close()
			done <- answer{status: resp.StatusCode}
		}()
		if _, err := io.WriteString(writer, `{"roles": [`); err != nil {
			t.Fatal(err)
		}
		return slow{writer, done}
	}
	attack, own := begin("eve", "mia"), begin("ada", "bob")
	s.Exec(`UPDATE organization_members SET roles = '{}' WHERE user_id = $1`, s.User("eve"))
	testwait.Until(t, "the request of a former admin is cut", func() error {
		_, err := io.WriteString(attack.body, " ")
		return testwait.Unless(err != nil, "the server still reads it")
	})
	if got := <-attack.done; got.err == nil && got.status < 400 {
		t.Errorf("the request of a former admin: %d", got.status)
	}
	io.WriteString(own.body, `"organization-auditor"]}`)
	own.body.Close()
	if got := <-own.done; got.status != 200 {
		t.Errorf("the request of an admin: %d, %v", got.status, got.err)
	}
	for name, want := range map[string]int{"mia": 0, "bob": 1} {
		m, err := s.DB.GetOrganizationMember(t.Context(), dbsqlc.GetOrganizationMemberParams{OrganizationID: s.Org, UserID: s.User(name)})
		if err != nil || len(m.Roles) != want {
			t.Errorf("%s has the roles %q, %v", name, m.Roles, err)
		}
	}
}

// TestRequestsWhileMembershipsChange sends requests of users who lose memberships, groups and roles at the same time: what does not depend on these is
// done, and is answered as done.
func TestRequestsWhileMembershipsChange(t *testing.T) {
	t.Parallel()
	s := coderdtest.Start(t)
	olga := s.As("olga")
	s.User("mia")
	group, err := olga.CreateGroup(t.Context(), s.Org.String(), sdk.CreateGroupRequest{Name: "crew"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	// each calls f several times beside the others.
	each := func(n int, f func(i int) error) {
		for i := range n {
			all.Go(func() {
				if err := f(i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	for round := range 3 {
		var victims []uuid.UUID
		for i := range 4 {
			victims = append(victims, s.User(fmt.Sprintf("gone-%d-%d", round, i)))
		}
		var orgs []sdk.Organization
		for i := range 2 {
			o, err := olga.CreateOrganization(t.Context(), sdk.CreateOrganizationRequest{Name: fmt.Sprintf("short-%d-%d", round, i)})
			if err != nil {
				t.Fatal(err)
			}
			orgs = append(orgs, o)
			for _, name := range []string{"olga", "mia"} {
				s.Exec(`INSERT INTO organization_members (organization_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, o.ID, s.User(name))
			}
		}
		s.Exec(`INSERT INTO group_members (group_id, user_id) VALUES ($1, $2), ($1, $3) ON CONFLICT DO NOTHING`, group.ID, s.User("olga"), s.User("mia"))
		mia := s.As("mia")
		each(len(orgs), func(i int) error { return olga.DeleteOrganization(t.Context(), orgs[i].ID.String()) })
		each(1, func(int) error {
			_, err := olga.PatchGroup(t.Context(), group.ID, sdk.PatchGroupRequest{RemoveUsers: []string{s.User("olga").String(), s.User("mia").String()}})
			return err
		})
		each(len(victims), func(i int) error { return olga.DeleteUser(t.Context(), victims[i].String()) })
		each(4, func(int) error {
			_, err := mia.Workspaces(t.Context(), sdk.WorkspacesQuery{})
			return err
		})
		each(4, func(int) error {
			_, err := mia.Organizations(t.Context())
			return err
		})
		all.Wait()
		for _, id := range victims {
			if _, err := olga.User(t.Context(), id.String()); fault.CodeOf(err) != fault.NotFound {
				t.Errorf("a deleted user: %v", err)
			}
		}
	}
}
