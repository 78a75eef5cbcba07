package coderd_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// overviewOf returns the deployment's overview as olga reads it, in UTC.
func overviewOf(t *testing.T, s *coderdtest.Server) sdk.DeploymentOverview {
	t.Helper()
	got, err := s.As("olga").DeploymentOverview(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// costs makes a build and what it costs.
func costs(s *coderdtest.Server, workspace uuid.UUID, transition sdk.Transition, status sdk.JobStatus, cost int) coderdtest.Build {
	s.T.Helper()
	b := s.BuildRow(workspace, transition, status)
	s.Exec(`UPDATE workspace_builds SET daily_cost = $2 WHERE job_id = $1`, b.Job, cost)
	return b
}

// TestOverviewCounts checks the counts of workspaces, users and the queue, and the versions of servers and agents.
func TestOverviewCounts(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	_, agent := s.RunningRow("ann", "running")
	s.Exec(`UPDATE workspace_agents SET version = 'v2.31.2', first_connected_at = now(), last_connected_at = now() WHERE id = $1`, agent)
	_, agent = s.RunningRow("bob", "lost")
	s.Exec(`UPDATE workspace_agents SET version = 'v2.31.1', first_connected_at = now(), last_connected_at = now(), disconnected_at = now() WHERE id = $1`, agent)
	s.RunningRow("bob", "new")
	for name, last := range map[string]struct {
		transition sdk.Transition
		status     sdk.JobStatus
	}{
		"stopped": {sdk.TransitionStop, sdk.JobSucceeded}, "failed": {sdk.TransitionStart, sdk.JobFailed}, "canceled": {sdk.TransitionStart, sdk.JobCanceled},
		"starts": {sdk.TransitionStart, sdk.JobRunning}, "waits": {sdk.TransitionStart, sdk.JobPending},
	} {
		s.BuildRow(s.WorkspaceRow("bob", name), last.transition, last.status)
	}
	s.Exec(`UPDATE provisioner_jobs SET created_at = now() - interval '90 seconds' WHERE status = 'pending'`)
	s.Exec(`UPDATE workspaces SET dormant_at = now() WHERE name = 'stopped'`)
	s.Exec(`UPDATE workspaces SET owner_id = prebuilds_owner() WHERE name = 'new'`)
	s.BuildRow(s.WorkspaceRow("bob", "deleted"), sdk.TransitionDelete, sdk.JobSucceeded)
	s.Exec(`UPDATE workspaces SET deleted_at = now() WHERE name = 'deleted'`)
	s.Exec(`UPDATE users SET status = 'dormant', last_seen_at = now() - interval '90 days' WHERE id = $1`, s.User("dora"))
	s.Exec(`UPDATE users SET status = 'suspended', last_seen_at = now() - interval '1 minute' WHERE id = $1`, s.User("sue"))
	s.Exec(`UPDATE users SET deleted_at = now() WHERE id = $1`, s.User("del"))
	s.Exec(`UPDATE users SET last_seen_at = now() - interval '2 hours' WHERE username IN ('ann', 'bob')`)
	for i, version := range []string{"v2.31.2", "v2.31.1", "v2.30.0"} { // the last one was killed an hour ago
		s.Exec(`INSERT INTO servers (id, url, version, region, started_at, beat_at) VALUES ($1, $2, $3, 'eu', $4, $5)`, uuid.New(), "http://s"+version, version,
			time.Now().Add(time.Duration(i-9)*time.Hour), time.Now().Add(time.Duration(i/2)*-time.Hour))
	}
	got := overviewOf(t, s)
	if want := (sdk.OverviewWorkspaces{Total: 8, Running: 3, Stopped: 1, Building: 1, Pending: 1, Failed: 2, Dormant: 1, Prebuilt: 1}); got.Workspaces != want {
		t.Errorf("workspaces: %+v, want %+v", got.Workspaces, want)
	}
	// olga asks.
	if want := (sdk.OverviewUsers{Active: 3, Dormant: 1, Suspended: 1, SeenHour: 2}); got.Users != want {
		t.Errorf("users: %+v, want %+v", got.Users, want)
	}
	if q := got.Queue; q.Waiting != 1 || q.Running != 1 || q.OldestWaitingSeconds < 90 || q.Provisioners != 0 {
		t.Errorf("queue: %+v", q)
	}
	if len(got.Servers) != 2 || got.Servers[0].Version != "v2.31.2" || got.Servers[1].Version != "v2.31.1" || got.Servers[0].ReplicaURL != "http://sv2.31.2" || got.Servers[0].Region != "eu" {
		t.Errorf("servers: %+v", got.Servers)
	}
	want := sdk.List[sdk.AgentVersion]{{Version: "", Agents: 1}, {Version: "v2.31.1", Agents: 1}, {Version: "v2.31.2", Agents: 1, Connected: 1}}
	if diff := cmp.Diff(want, got.AgentVersions); diff != "" {
		t.Errorf("agents (-want +got):\n%s", diff)
	}
}

// TestOverviewCosts checks that costs are those that quotas count, by template, group and user of several organizations.
func TestOverviewCosts(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga := s.As("olga")
	west, err := olga.CreateOrganization(t.Context(), sdk.CreateOrganizationRequest{Name: "west"})
	if err != nil {
		t.Fatal(err)
	}
	s.Exec(`INSERT INTO organization_members (organization_id, user_id) VALUES ($1, $2)`, west.ID, s.User("ann"))
	devs, err := olga.CreateGroup(t.Context(), sdk.DefaultOrganization, sdk.CreateGroupRequest{Name: "devs", DisplayName: "Developers"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := olga.PatchGroup(t.Context(), devs.ID, sdk.PatchGroupRequest{AddUsers: []string{s.User("ann").String()}}); err != nil {
		t.Fatal(err)
	}
	one := s.WorkspaceRow("ann", "one")
	costs(s, one, sdk.TransitionStart, sdk.JobSucceeded, 7)
	costs(s, one, sdk.TransitionStop, sdk.JobSucceeded, 3)   // its disk
	costs(s, one, sdk.TransitionStart, sdk.JobFailed, 0)     // made nothing
	costs(s, one, sdk.TransitionStart, sdk.JobRunning, 1000) // not yet
	two := s.WorkspaceRow("ann", "two")
	costs(s, two, sdk.TransitionStart, sdk.JobFailed, 20) // left resources
	three := s.WorkspaceRow("bob", "three")
	costs(s, three, sdk.TransitionStart, sdk.JobSucceeded, 100)
	s.Exec(`UPDATE workspaces SET template_id = (SELECT template_id FROM workspaces WHERE id = $1) WHERE id = $2`, one, three)
	gone := s.WorkspaceRow("bob", "gone")
	costs(s, gone, sdk.TransitionStart, sdk.JobSucceeded, 1_000_000)
	s.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, gone)
	far := s.WorkspaceRow("ann", "far")
	costs(s, far, sdk.TransitionStart, sdk.JobSucceeded, 50)
	s.Exec(`UPDATE workspaces SET organization_id = $1 WHERE id = $2`, west.ID, far)
	s.Exec(`UPDATE templates SET organization_id = $1 WHERE id = (SELECT template_id FROM workspaces WHERE id = $2)`, west.ID, far)

	got := overviewOf(t, s).Costs
	row := func(c sdk.CostOf) [6]any {
		return [6]any{c.Name, c.DisplayName, c.OrganizationName, c.Workspaces, c.Running, c.DailyCost}
	}
	rows := func(list []sdk.CostOf) (out [][6]any) {
		for _, c := range list {
			out = append(out, row(c))
		}
		return out
	}
	check := func(what string, got, want [][6]any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	check("users", rows(got.Users), [][6]any{{"bob", "", "", int64(1), int64(1), int64(100)}, {"ann", "", "", int64(3), int64(1), int64(73)}})
	everyone := sdk.Everyone
	check("groups", rows(got.Groups), [][6]any{
		{everyone, everyone, sdk.DefaultOrganization, int64(3), int64(1), int64(123)}, {everyone, everyone, "west", int64(1), int64(1), int64(50)},
		{"devs", "Developers", sdk.DefaultOrganization, int64(2), int64(0), int64(23)},
	})
	name := func(workspace uuid.UUID) (out string) {
		if err := s.DB.Pool.QueryRow(t.Context(), `SELECT t.name FROM templates t JOIN workspaces w ON w.template_id = t.id WHERE w.id = $1`, workspace).Scan(&out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	check("templates", rows(got.Templates), [][6]any{
		{name(one), "", sdk.DefaultOrganization, int64(2), int64(1), int64(103)}, {name(far), "", "west", int64(1), int64(1), int64(50)},
		{name(two), "", sdk.DefaultOrganization, int64(1), int64(0), int64(20)},
	})
	if got.DailyCost != 173 {
		t.Errorf("in all %d, want 173", got.DailyCost)
	}
	if q := consumed(s, "ann", sdk.DefaultOrganization, "west"); q != 73 {
		t.Errorf("ann's quotas have %d credits, the overview 73", q)
	}
}

// consumed returns what a user's workspaces cost by the quotas of some organizations.
func consumed(s *coderdtest.Server, user string, organizations ...string) (all int) {
	s.T.Helper()
	for _, org := range organizations {
		q, err := s.As("olga").WorkspaceQuota(s.T.Context(), org, user)
		if err != nil {
			s.T.Fatal(err)
		}
		all += int(q.CreditsConsumed)
	}
	return all
}

// TestOverviewIsComplete: no list ends at a round number.
func TestOverviewIsComplete(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Seed(coderdtest.Size{Users: 205, Workspaces: 205, Builds: 205})
	if got := overviewOf(t, s).Costs; len(got.Users) != 205 || len(got.Templates) != 20 || len(got.Groups) != 1 {
		t.Errorf("%d users, %d templates and %d groups, want 205, 20 and Everyone", len(got.Users), len(got.Templates), len(got.Groups))
	}
}

// TestWhoReadsTheOverview: owners do. Administrators of an organization or its templates do not, because costs and users
// are those of all.
func TestWhoReadsTheOverview(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	s.Exec(`UPDATE organization_members SET roles = '{organization-admin}' WHERE user_id = $1`, s.User("dan"))
	s.Exec(`UPDATE users SET roles = '{auditor,user-admin}' WHERE id = $1`, s.User("aud"))
	s.RunningRow("ann", "secretly-named")
	for user, want := range map[string]int{"olga": 200, "ann": 403, "tom": 403, "dan": 403, "aud": 403, "": 401} {
		status, body := get(t, s, s.Token(user), "deployment/overview")
		if status != want {
			t.Errorf("%q: %d %s, want %d", user, status, body, want)
		}
		if status != 200 && strings.Contains(body, "ann") {
			t.Errorf("%q learns %s", user, body)
		}
	}
	for _, zone := range []string{"Nowhere", "Local", "../../etc/passwd", "Europe/Berlin';--"} {
		if _, err := s.As("olga").DeploymentOverview(t.Context(), zone); err == nil {
			t.Errorf("%s is a time zone", zone)
		}
	}
}

// get returns the status and the body of a GET request.
func get(t *testing.T, s *coderdtest.Server, token, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.String()+"/api/v2/"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Coder-Session-Token", token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
