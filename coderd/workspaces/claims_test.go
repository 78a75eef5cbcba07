package workspaces_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd"
	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestOnlyExactRequestsClaim checks that requests that differ from the preset make a workspace of their own.
func TestOnlyExactRequestsClaim(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1, TtlSeconds: 3600})
	w.run(1)
	_, agent := w.start()
	old := w.template.ActiveVersionID
	for name, edit := range map[string]func(*sdk.CreateWorkspaceRequest){
		"no-preset": func(r *sdk.CreateWorkspaceRequest) { r.TemplateVersionPresetID = uuid.Nil },
		"no-preset-cpus": func(r *sdk.CreateWorkspaceRequest) {
			r.TemplateVersionPresetID, r.RichParameterValues = uuid.Nil, []sdk.ParameterValue{{Name: "cpus", Value: "4"}}
		},
		"region": func(r *sdk.CreateWorkspaceRequest) {
			r.RichParameterValues = []sdk.ParameterValue{{Name: "region", Value: "us"}}
		},
		"cpus": func(r *sdk.CreateWorkspaceRequest) {
			r.RichParameterValues = []sdk.ParameterValue{{Name: "cpus", Value: "4"}}
		},
		"tags": func(r *sdk.CreateWorkspaceRequest) { r.ProvisionerTags = map[string]string{"gpu": "yes"} },
	} {
		if ws, err := w.create("ann", name, edit); err != nil || ws.LatestBuild.BuildNumber != 1 {
			t.Errorf("%s: build %d, %v", name, ws.LatestBuild.BuildNumber, err)
		}
	}
	for state, sql := range map[string]string{
		"connecting":   "UPDATE workspace_agents SET last_connected_at = NULL WHERE id = $1",
		"disconnected": "UPDATE workspace_agents SET disconnected_at = now() WHERE id = $1",
		"starting":     "UPDATE workspace_agents SET lifecycle_state = 'starting' WHERE id = $1",
		"failed":       "UPDATE workspace_agents SET lifecycle_state = 'start_error' WHERE id = $1",
	} {
		w.Exec(sql, agent)
		if ws, err := w.create("ann", state); err != nil || ws.LatestBuild.BuildNumber != 1 {
			t.Errorf("agent %s: build %d, %v", state, ws.LatestBuild.BuildNumber, err)
		}
		w.ready(agent)
	}
	w.Exec("UPDATE prebuilt_workspaces SET created_at = now() - interval '2 hours'")
	if ws, err := w.create("ann", "expired"); err != nil || ws.LatestBuild.BuildNumber != 1 {
		t.Errorf("expired: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
	w.Exec("UPDATE prebuilt_workspaces SET created_at = now()")
	if _, err := w.create("ann", "no-preset"); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a name that is taken: %v", err)
	}
	if n := len(w.prebuilt()); n != 1 {
		t.Fatalf("%d prebuilt workspaces are left, want 1", n)
	}
	// The default values may be given, too, and the preset need not be named.
	ws, err := w.create("ann", "same", func(r *sdk.CreateWorkspaceRequest) {
		r.TemplateVersionPresetID, r.TemplateVersionID = uuid.Nil, old
		r.RichParameterValues = []sdk.ParameterValue{{Name: "region", Value: "eu"}, {Name: "cpus", Value: "8.0"}}
	})
	if err != nil || ws.LatestBuild.BuildNumber != 2 {
		t.Errorf("the same values: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
}

// TestClaimsOfTwoServers checks that two servers create no more prebuilt workspaces than asked for, and give each to one user.
func TestClaimsOfTwoServers(t *testing.T) {
	t.Parallel()
	const n, users = 6, 9
	w := newPool(t, &provisionerpb.Prebuilds{Instances: n})
	second := coderdtest.New(t, func(o *coderd.Options) { o.DB, o.States = w.DB, w.States })
	both := []*coderdtest.Server{w.Server, second}
	for range 3 {
		var wg sync.WaitGroup
		for _, s := range both {
			wg.Go(func() {
				if err := s.Workspaces.RunSchedule(t.Context(), w.now); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	if got := len(w.prebuilt()); got != n {
		t.Fatalf("two servers created %d prebuilt workspaces, want %d", got, n)
	}
	for range n {
		w.start()
	}
	second.User("ann")
	w.User("ann")
	var wg sync.WaitGroup
	made := make([]sdk.Workspace, users)
	for i := range users {
		client := both[i%2].As("ann")
		wg.Go(func() {
			var err error
			if made[i], err = client.CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{
				TemplateID: w.template.ID, Name: fmt.Sprintf("ws-%d", i), TemplateVersionPresetID: w.preset,
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ids, claimed := map[uuid.UUID]bool{}, 0
	for _, ws := range made {
		ids[ws.ID] = true
		if ws.LatestBuild.BuildNumber == 2 {
			claimed++
		}
	}
	if len(ids) != users || claimed != n || len(w.prebuilt()) != 0 {
		t.Errorf("%d users got %d workspaces, %d of them prebuilt (want %d); %d are left", users, len(ids), claimed, n, len(w.prebuilt()))
	}
}

// TestNobodyUsesUnclaimedWorkspaces checks that neither members nor administrators can enter or change a prebuilt workspace, or act as its owner.
func TestNobodyUsesUnclaimedWorkspaces(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	_, agent := w.start()
	ws := w.prebuilt()[0]
	path := "/api/v2/workspaces/" + ws.ID.String()
	for _, c := range []struct {
		user, method, path, body string
		status                   int
	}{
		{"ann", "GET", path, "", 404},
		{"ann", "GET", "/api/v2/users/prebuilds/workspace/" + ws.Name, "", 404},
		{"ann", "GET", "/api/v2/users/prebuilds", "", 404},
		{"ann", "DELETE", path + "/acl", "", 404},
		{"ann", "POST", path + "/builds", `{"transition":"delete"}`, 404},
		{"ann", "PATCH", path, `{"name":"mine"}`, 404},
		{"olga", "GET", path, "", 200},
		{"olga", "GET", "/api/v2/users/prebuilds/workspace/" + ws.Name, "", 200},
		{"olga", "PATCH", path, `{"name":"mine"}`, 409},
		{"olga", "PATCH", path + "/acl", `{"user_roles":{"` + w.User("olga").String() + `":"use"}}`, 409},
		{"olga", "PUT", path + "/ttl", `{"ttl_ms":3600000}`, 409},
		{"olga", "PUT", path + "/dormant", `{"dormant":true}`, 409},
		{"olga", "POST", path + "/builds", `{"transition":"stop"}`, 409},
		{"olga", "POST", path + "/builds", `{"transition":"start"}`, 409},
		{"olga", "POST", path + "/restart", `{}`, 409},
		{"olga", "GET", "/api/v2/users/prebuilds", "", 404},
		{"olga", "POST", "/api/v2/users/prebuilds/keys", `{}`, 404},
		{"olga", "POST", "/api/v2/users/" + sdk.PrebuildsOwnerID.String() + "/keys/tokens", `{"token_name":"x"}`, 404},
		{"olga", "PUT", "/api/v2/users/" + sdk.PrebuildsOwnerID.String() + "/password", `{"password":"SomePassword1!"}`, 404},
		{"olga", "POST", "/api/v2/users/prebuilds/workspaces", `{"name":"x","template_id":"` + w.template.ID.String() + `"}`, 404},
		{"olga", "POST", "/api/v2/users", `{"username":"prebuilds","email":"p@example.com","password":"SomePassword1!","login_type":"password"}`, 400},
	} {
		if got := requested(t, w.Server, c.user, c.method, c.path, c.body); got != c.status {
			t.Errorf("%s %s %s %s: %d, want %d", c.user, c.method, c.path, c.body, got, c.status)
		}
	}
	if got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{}); err != nil || got.Count != 0 {
		t.Errorf("ann sees %d workspaces, %v", got.Count, err)
	}
	users, err := w.As("olga").Users(t.Context(), sdk.UsersQuery{})
	if err != nil || slices.ContainsFunc(users.Users, func(u sdk.User) bool { return u.Username == sdk.PrebuildsOwner }) {
		t.Errorf("users: %+v, %v", users, err)
	}
	reach := func(user string) bool {
		t.Helper()
		ids, err := w.Agents.Reachable(t.Context(), w.User(user), agent)
		if err != nil {
			t.Fatal(err)
		}
		return len(ids) == 1
	}
	if reach("ann") || reach("olga") || reach("tom") {
		t.Error("an unclaimed workspace's agent can be reached")
	}
	// The policies of the template do not stop or delete it.
	schedule(t, w.Server, w.now.Add(365*24*time.Hour))
	if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != 1 {
		t.Errorf("policy built it: %s", got.Transition)
	}

	got, err := w.create("ann", "mine")
	if err != nil || got.ID != ws.ID {
		t.Fatalf("claim: %v", err)
	}
	if reach("ann") {
		t.Error("the owner reaches an agent that still has the pool's manifest")
	}
	w.take(agent)
	if !reach("ann") || reach("olga") || reach("tom") || reach("bob") {
		t.Error("a claimed workspace must be reached by its owner only")
	}
}

// requested returns the status of an answer to a user.
func requested(t *testing.T, w *coderdtest.Server, user, method, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL.String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token(user))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestPrebuildsAndQuotas checks that prebuilt workspaces count against no quota, and that no user claims what exceeds theirs.
func TestPrebuildsAndQuotas(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	allowance := 1
	if _, err := w.As("olga").PatchGroup(t.Context(), w.Org, sdk.PatchGroupRequest{QuotaAllowance: &allowance}); err != nil {
		t.Fatal(err)
	}
	w.run(1)
	w.start() // costs 2
	if ws := w.prebuilt()[0]; ws.LatestBuild.Status != sdk.WorkspaceRunning {
		t.Fatalf("the prebuilt workspace is %s", ws.LatestBuild.Status)
	}
	if ws, err := w.create("ann", "dear"); err != nil || ws.LatestBuild.BuildNumber != 1 {
		t.Errorf("over quota: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
	allowance = 4
	if _, err := w.As("olga").PatchGroup(t.Context(), w.Org, sdk.PatchGroupRequest{QuotaAllowance: &allowance}); err != nil {
		t.Fatal(err)
	}
	if ws, err := w.create("ann", "cheap"); err != nil || ws.LatestBuild.BuildNumber != 2 {
		t.Errorf("within quota: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
}

// TestClaimsNeedTheTemplate checks that a preset's id gives no user a prebuilt workspace of a template that they may not use, and that no
// user claims one for another.
func TestClaimsNeedTheTemplate(t *testing.T) {
	t.Parallel()
	w := newPool(t, &provisionerpb.Prebuilds{Instances: 1})
	w.run(1)
	w.start()
	w.As("tom")
	w.User("ann")
	own := w.Template("own", process())
	annOnly := sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{w.User("ann").String(): "use"}, GroupPerms: map[string]string{w.Org.String(): ""}}
	if err := w.As("olga").UpdateTemplateACL(t.Context(), w.template.ID, annOnly); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*sdk.CreateWorkspaceRequest){
		"template": func(*sdk.CreateWorkspaceRequest) {},
		"version": func(r *sdk.CreateWorkspaceRequest) {
			r.TemplateID, r.TemplateVersionID = uuid.Nil, w.template.ActiveVersionID
		},
		"own": func(r *sdk.CreateWorkspaceRequest) { r.TemplateID = own.ID },
	} {
		if ws, err := w.create("bob", name, edit); err == nil || fault.CodeOf(err) != fault.NotFound && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("by the %s: %s, %v", name, ws.ID, err)
		}
	}
	req := sdk.CreateWorkspaceRequest{TemplateID: w.template.ID, Name: "theirs", TemplateVersionPresetID: w.preset}
	for _, user := range []string{"bob", "ann"} {
		for _, target := range []string{"olga", "ann", "bob", sdk.PrebuildsOwner} {
			if user == target {
				continue
			}
			if ws, err := w.As(user).CreateWorkspace(t.Context(), target, req); err == nil {
				t.Errorf("%s claims %s for %s", user, ws.ID, target)
			}
		}
	}
	if got := w.prebuilt(); len(got) != 1 {
		t.Fatalf("%d prebuilt workspaces are left", len(got))
	}
	if ws, err := w.create("ann", "mine"); err != nil || ws.LatestBuild.BuildNumber != 2 {
		t.Errorf("who may use the template: build %d, %v", ws.LatestBuild.BuildNumber, err)
	}
}
