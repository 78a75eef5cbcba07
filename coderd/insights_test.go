package coderd_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database/dbsqlc"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestRefusalsAreNoUse checks that what was refused counts in no insight, and is no way that a user has connected by.
func TestRefusalsAreNoUse(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, agent := s.RunningRow("ann", "dev")
	since, until := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 3, 3, 0, 0, 0, 0, time.UTC)
	var template uuid.UUID
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT template_id FROM workspaces WHERE id = $1", ws).Scan(&template); err != nil {
		t.Fatal(err)
	}
	counts := func() (n int) {
		t.Helper()
		days, err := s.DB.CountActiveUsers(t.Context(), dbsqlc.CountActiveUsersParams{Since: since, Until: until, StepSeconds: 86400})
		activity, err2 := s.DB.ListUserActivity(t.Context(), dbsqlc.ListUserActivityParams{Since: since, Until: until, TemplateIds: []uuid.UUID{template}})
		apps, err3 := s.DB.ListAppUsage(t.Context(), dbsqlc.ListAppUsageParams{Since: since, Until: until, TemplateIds: []uuid.UUID{template}})
		latency, err4 := s.DB.ListUserLatency(t.Context(), dbsqlc.ListUserLatencyParams{Since: since, Until: until, TemplateIds: []uuid.UUID{template}})
		types, err5 := s.DB.ListConnectionTypes(t.Context(), s.User("bob"))
		if err := errors.Join(err, err2, err3, err4, err5); err != nil {
			t.Fatal(err)
		}
		return len(days) + len(activity) + len(apps) + len(latency) + len(types)
	}
	s.Exec(`INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, user_id, latency_us, refused)
		VALUES ($1, $2, $2, $3, $4, $5, 'dev', $6, 'main', 'ssh', $7, 5, 2)`, uuid.New(), since.Add(time.Hour), s.Org, s.User("ann"), ws, agent, s.User("bob"))
	if n := counts(); n != 0 {
		t.Errorf("a refusal counts %d times", n)
	}
	s.Exec("UPDATE connection_logs SET refused = 0")
	if n := counts(); n != 5 {
		t.Errorf("a connection counts %d times, want 5", n)
	}
}

// TestInsights checks what the reports say about connections that overlap, cross midnight, are open or lie outside the period, and that
// only those who administer a template read them.
func TestInsights(t *testing.T) {
	t.Parallel()
	s, known := clientWorld(t)
	other := s.Template("other", nil)
	known["other"] = other.ID.String()
	ws, agent := uuid.MustParse(known["ws"]), uuid.MustParse(known["agent"])
	connected := func(who, kind, slug, from, to string) {
		t.Helper()
		var end any
		if to != "" {
			end = to
		}
		s.Exec(`INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, slug_or_port, user_id)
			VALUES ($1, $2::timestamptz, $3::timestamptz, $4, $5, $6, 'dev', $7, 'main', $8, $9, $10)`,
			uuid.New(), from, end, s.Org, s.User("ann"), ws, agent, kind, slug, s.User(who))
	}
	connected("ann", "ssh", "", "2026-03-01T10:00:00Z", "2026-03-01T11:00:00Z")
	connected("ann", "vscode", "", "2026-03-01T10:30:00Z", "2026-03-01T11:30:00Z") // an hour and a half in all
	connected("ann", "ssh", "", "2026-03-01T10:15:00Z", "2026-03-01T10:20:00Z")    // within another
	connected("ann", "ssh", "", "2026-02-27T23:00:00Z", "2026-03-01T00:10:00Z")    // ten minutes of the period
	connected("bob", "workspace_app", "code", "2026-03-01T23:30:00Z", "2026-03-02T00:30:00Z")
	connected("bob", "ssh", "", "2026-02-20T10:00:00Z", "2026-02-20T11:00:00Z") // before the period
	connected("bob", "ssh", "", "2026-03-03T00:00:00Z", "2026-03-03T11:00:00Z") // after it
	// Three of ann's connections have a known round trip, and one that is outside of the period does not count.
	for i, began := range []string{"2026-03-01T10:00:00Z", "2026-03-01T10:30:00Z", "2026-03-01T10:15:00Z", "2026-03-03T00:00:00Z"} {
		s.Exec(`UPDATE connection_logs SET latency_us = $1 WHERE connect_time = $2::timestamptz`, []int{1000, 10_000, 30_000, 900_000}[i], began)
	}
	const period = "start_time=2026-03-01T00:00:00Z&end_time=2026-03-03T00:00:00Z"
	ids := `"template_ids":["{template}"]`
	replay(t, s, known, []step{
		{method: "GET", path: "insights/user-activity?template_ids={template}&" + period, status: 200, want: `{"report":{` + ids + `,"users":[
			{` + ids + `,"user_id":"{ann}","username":"ann","avatar_url":"","seconds":6000},{` + ids + `,"user_id":"{bob}","username":"bob","avatar_url":"","seconds":3600}]}}`},
		{method: "GET", path: "insights/templates?interval=day&template_ids={template}&" + period, status: 200, want: `{
			"report":{"active_users":2,"parameters_usage":[],"apps_usage":[
				{` + ids + `,"type":"builtin","display_name":"SSH","slug":"ssh","icon":"","seconds":4200,"times_used":3},
				{` + ids + `,"type":"builtin","display_name":"Visual Studio Code","slug":"vscode","icon":"","seconds":3600,"times_used":1},
				{` + ids + `,"type":"app","display_name":"code","slug":"code","icon":"","seconds":3600,"times_used":1}]},
			"interval_reports":[
				{"start_time":"2026-03-01T00:00:00Z","end_time":"2026-03-02T00:00:00Z",` + ids + `,"interval":"day","active_users":2},
				{"start_time":"2026-03-02T00:00:00Z","end_time":"2026-03-03T00:00:00Z",` + ids + `,"interval":"day","active_users":1}]}`},
		// The first week of two days is as long as they.
		{method: "GET", path: "insights/templates?sections=interval_reports&interval=week&template_ids={template}&" + period, status: 200, want: `{"interval_reports":[
				{"start_time":"2026-03-01T00:00:00Z","end_time":"2026-03-03T00:00:00Z",` + ids + `,"interval":"week","active_users":2}]}`},
		{method: "GET", path: "insights/user-latency?template_ids={template}&" + period, status: 200, want: `{"report":{` + ids + `,"users":[
			{` + ids + `,"user_id":"{ann}","username":"ann","avatar_url":"","latency_ms":{"p50":10,"p95":28}}]}}`},
		{as: "tom", method: "GET", path: "insights/user-latency?" + period, status: 200},
		{as: "tom", method: "GET", path: "insights/user-latency?template_ids={other}&" + period, status: 200, want: `{"report":{"users":[]}}`},
		{as: "ann", method: "GET", path: "insights/user-latency?template_ids={template}&" + period, status: 403},
		{as: "ann", method: "GET", path: "insights/user-latency?" + period, status: 404},
		{as: "nobody", method: "GET", path: "insights/user-latency?" + period, status: 401},
		{method: "GET", path: "insights/user-latency?template_ids={none}&" + period, status: 404},
		{method: "GET", path: "insights/user-latency?start_time=2026-03-01", status: 400},
		{as: "tom", method: "GET", path: "insights/user-activity?template_ids={other}&" + period, status: 200, want: `{"report":{"template_ids":["{other}"],"users":[]}}`},
		{as: "tom", method: "GET", path: "insights/templates?sections=report&" + period, status: 200, want: `{"report":{"active_users":2}}`},
		{as: "tom", method: "GET", path: "templates/{template}/daus?tz_offset=-3", status: 200, want: `{"tz_hour_offset":-3}`},
		{method: "GET", path: "insights/daus", status: 200, want: `{"tz_hour_offset":0}`},
		// Ann may use the template, and was connected: she does not read who else was.
		{as: "ann", method: "GET", path: "insights/user-activity?template_ids={template}&" + period, status: 403},
		{as: "ann", method: "GET", path: "insights/templates?template_ids={template}&" + period, status: 403},
		{as: "ann", method: "GET", path: "insights/templates?" + period, status: 404},
		{as: "ann", method: "GET", path: "templates/{template}/daus", status: 403},
		{as: "ann", method: "GET", path: "insights/daus", status: 403},
		{as: "nobody", method: "GET", path: "insights/daus", status: 401},
		{as: "nobody", method: "GET", path: "insights/user-activity?" + period, status: 401},
		// One foreign template among one's own refuses the whole.
		{method: "PATCH", path: "templates/{other}/acl", body: `{"user_perms":{"{bob}":"admin"},"group_perms":{"{org}":""}}`, status: 200},
		{as: "bob", method: "GET", path: "insights/user-activity?template_ids={other}&" + period, status: 200},
		{as: "bob", method: "GET", path: "insights/user-activity?" + period, status: 200, want: `{"report":{"template_ids":["{other}"],"users":[]}}`},
		{as: "bob", method: "GET", path: "insights/user-activity?template_ids={other},{template}&" + period, status: 403},
		{as: "ann", method: "GET", path: "insights/user-activity?template_ids={other}&" + period, status: 404},
		{method: "GET", path: "insights/user-activity?template_ids={none}&" + period, status: 404},
		{method: "GET", path: "insights/user-activity?template_ids=x&" + period, status: 400},
		{method: "GET", path: "insights/user-activity?start_time=2026-03-01", status: 400},
		{method: "GET", path: "insights/user-activity?start_time=2026-03-01T00:00:00Z&end_time=2026-03-01T00:00:00Z", status: 400},
		{method: "GET", path: "insights/user-activity?start_time=0001-01-01T00:00:00Z&end_time=9999-01-01T00:00:00Z", status: 400},
		{method: "GET", path: "insights/templates?interval=minute&" + period, status: 400},
		{method: "GET", path: "insights/templates?sections=secrets&" + period, status: 400},
		{method: "GET", path: "insights/daus?tz_offset=99", status: 400},
	})
}

// TestDailyUsers checks that an open connection counts for every day since it began, in the days of the time zone that is asked for.
func TestDailyUsers(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	ws, agent := s.RunningRow("ann", "dev")
	s.Exec(`INSERT INTO connection_logs (id, connect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, user_id)
		VALUES ($1, now() - interval '49 hours', $2, $3, $4, 'dev', $5, 'main', 'ssh', $3)`, uuid.New(), s.Org, s.User("ann"), ws, agent)
	for _, offset := range []string{"0", "-12", "14"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL.String()+"/api/v2/insights/daus?tz_offset="+offset, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Coder-Session-Token", s.Token("olga"))
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var got sdk.DAUsResponse
		if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		zone := time.FixedZone("", got.TZHourOffset*3600)
		if len(got.Entries) != 60 || got.Entries[59].Date != time.Now().In(zone).Format(time.DateOnly) {
			t.Fatalf("%s hours: %+v, want 60 days that end today", offset, got)
		}
		began := time.Now().Add(-49 * time.Hour).In(zone).Format(time.DateOnly)
		for _, e := range got.Entries {
			want := int64(0)
			if e.Date >= began {
				want = 1
			}
			if e.Amount != want {
				t.Errorf("%s hours: %s has %d users, want %d", offset, e.Date, e.Amount, want)
			}
		}
	}
}

// TestUserStatusCounts: the report follows the changes of users, also of those from before it was kept, and only owners read it.
func TestUserStatusCounts(t *testing.T) {
	t.Parallel()
	s := coderdtest.New(t)
	olga := s.As("olga")
	count := func(zone string) map[string][2]int64 { // of yesterday and today
		t.Helper()
		got, err := olga.UserStatusCounts(t.Context(), zone)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string][2]int64{}
		for status, days := range got.StatusCounts {
			if len(days) != 60 {
				t.Fatalf("%s: %d days", status, len(days))
			}
			for i := 1; i < len(days); i++ {
				if at := days[i].Date; at.Day() == days[i-1].Date.Day() || at.Hour() != 0 || at.Sub(days[i-1].Date) > 25*time.Hour {
					t.Errorf("%s: %s after %s", status, at, days[i-1].Date)
				}
			}
			out[status] = [2]int64{days[58].Count, days[59].Count}
		}
		return out
	}
	// The clock of the report is the server's: what follows is dated so that midnight may pass at any time.
	for _, name := range []string{"ann", "bob", "tom"} {
		s.User(name)
	}
	s.Exec(`UPDATE user_statuses SET since = now() - interval '10 days'`)
	s.Exec(`UPDATE user_statuses SET since = now() - interval '100 days' WHERE user_id = $1`, s.User("ann"))
	users := count("")["active"]
	if users[0] == 0 || users[0] != users[1] {
		t.Fatalf("active %v", users)
	}
	all := users[0]
	if _, err := olga.SuspendUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	s.Exec(`UPDATE users SET status = 'dormant' WHERE username = 'bob'`)
	s.Exec(`UPDATE users SET deleted_at = now(), status = 'suspended' WHERE username = 'tom'`)
	s.Exec(`UPDATE user_statuses SET since = now() - interval '3 days' WHERE since > now() - interval '1 day'`)
	for _, zone := range []string{"", "Pacific/Kiritimati", "America/New_York"} {
		got := count(zone)
		want := map[string][2]int64{"active": {all - 3, all - 3}, "suspended": {1, 1}, "dormant": {1, 1}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in %q (-want +got):\n%s", zone, diff)
		}
	}
	// A change that says nothing new adds nothing, and each other one does.
	var rows int
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM user_statuses`).Scan(&rows); err != nil {
		t.Fatal(err)
	}
	s.Exec(`UPDATE users SET status = status, last_seen_at = now()`)
	var after int
	if err := s.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM user_statuses`).Scan(&after); err != nil || after != rows {
		t.Errorf("%d rows after %d, %v", after, rows, err)
	}
	if _, err := olga.ActivateUser(t.Context(), "ann"); err != nil {
		t.Fatal(err)
	}
	if got := count("")["suspended"]; got[1] != 0 {
		t.Errorf("suspended users after ann was activated: %v", got)
	}
	known := map[string]string{}
	replay(t, s, known, []step{
		{as: "eve", method: "GET", path: "insights/user-status-counts", status: 403},
		{as: "nobody", method: "GET", path: "insights/user-status-counts", status: 401},
		{as: "olga", method: "GET", path: "insights/user-status-counts?timezone=Mars/Base", status: 400, text: "Europe/Berlin"},
		{as: "olga", method: "GET", path: "insights/user-status-counts?timezone=Local", status: 400},
		{as: "olga", method: "GET", path: "insights/user-status-counts?tz_offset=99", status: 400, text: "-12 to 14"},
		{as: "olga", method: "GET", path: "insights/user-status-counts?tz_offset=-5", status: 200, text: `T00:00:00-05:00`},
	})
}
