package metrics_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/metrics"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestOverviewDays checks in which day builds and connections count, in their time zone.
func TestOverviewDays(t *testing.T) {
	t.Parallel()
	s := coderdtest.NewRows(t)
	ws, agent := s.RunningRow("ann", "dev")
	s.Exec(`UPDATE provisioner_jobs SET completed_at = '2020-01-01'`)
	kathmandu := time.FixedZone("", 5*3600+45*60)
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, kathmandu) // the last day goes on
	midnight := func(daysAgo int) time.Time {
		return time.Date(now.Year(), now.Month(), now.Day()-daysAgo, 0, 0, 0, 0, kathmandu)
	}
	for _, ended := range []struct {
		at     time.Time
		status sdk.JobStatus
	}{
		{midnight(2), sdk.JobSucceeded}, {midnight(1).Add(-time.Second), sdk.JobFailed}, {midnight(1), sdk.JobCanceled}, {midnight(29), sdk.JobFailed},
		{midnight(29).Add(-time.Second), sdk.JobFailed}, // before the first day
	} {
		job := s.JobRow(sdk.JobWorkspaceBuild, ended.status)
		s.Exec(`UPDATE provisioner_jobs SET completed_at = $2 WHERE id = $1`, job, ended.at)
	}
	s.JobRow(sdk.JobWorkspaceBuild, sdk.JobRunning) // has not ended
	s.JobRow(sdk.JobTemplateImport, sdk.JobFailed)  // no build
	connected := func(who string, from, to any) {
		t.Helper()
		s.Exec(`INSERT INTO connection_logs (id, connect_time, disconnect_time, organization_id, workspace_owner_id, workspace_id, workspace_name, agent_id, agent_name, type, user_id)
			VALUES ($1, $2::timestamptz, $3::timestamptz, $4, $5, $6, 'dev', $7, 'main', 'ssh', $8)`, uuid.New(), from, to, s.Org, s.User("ann"), ws, agent, s.User(who))
	}
	connected("ann", midnight(3).Add(-time.Hour), midnight(3).Add(time.Hour)) // two days
	connected("ann", midnight(3).Add(2*time.Hour), midnight(3).Add(3*time.Hour))
	connected("bob", midnight(1), nil)           // until now
	connected("bob", midnight(90), midnight(28)) // began before
	connected("bob", midnight(90), midnight(40)) // over before
	connected("bob", midnight(10), midnight(10)) // refused
	s.Exec(`UPDATE connection_logs SET refused = 1 WHERE connect_time = $1`, midnight(10))
	got, err := metrics.DaysOf(metrics.New(s.DB, nil, slog.New(slog.DiscardHandler)), t.Context(), now)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]sdk.OverviewDay, 30)
	for i := range want {
		want[i].Date = midnight(29 - i).Format(time.DateOnly)
	}
	day := func(ago int) *sdk.OverviewDay { return &want[29-ago] }
	day(29).Builds, day(29).Failed, day(29).Users = 1, 1, 1
	day(28).Users = 1
	day(4).Users, day(3).Users = 1, 1
	day(2).Builds, day(2).Failed = 2, 1
	day(1).Builds, day(1).Canceled, day(1).Users = 1, 1, 1
	day(0).Users = 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
