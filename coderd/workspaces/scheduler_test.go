package workspaces_test

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/database"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestAutostopIsNotStarved checks that many workspaces that cannot be stopped do not keep another running past its deadline.
func TestAutostopIsNotStarved(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	good, _ := w.Running("ann", "good", template.ID)
	fill(t, w, template, 250)
	now := time.Now()
	w.Exec(`UPDATE workspace_builds SET deadline = $1::timestamptz - CASE WHEN workspace_id = $2 THEN interval '1 minute' ELSE interval '1 hour' END`, now, good.ID)
	w.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'cannot be stopped'; END $$`)
	w.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON workspace_builds FOR EACH ROW WHEN (NEW.workspace_id <> '` + good.ID.String() + `') EXECUTE FUNCTION refuse()`)
	// A run ends when the next one is due, which goes on where it ended: how many workspaces it reaches depends on the
	// machine.
	run := func(at time.Time) {
		t.Helper()
		for {
			err := w.Workspaces.RunSchedule(t.Context(), at)
			if err == nil {
				return
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
	}
	run(now)
	if got := w.Get(good.ID).LatestBuild; got.Transition != sdk.TransitionStop || got.Reason != sdk.ReasonAutostop {
		t.Errorf("the workspace that can be stopped: %s by %s", got.Transition, got.Reason)
	}
	// The others are tried again.
	w.Exec(`DROP TRIGGER refuse ON workspace_builds`)
	run(now.Add(2 * time.Minute))
	got, err := w.As("ann").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: "status:pending"})
	if err != nil || got.Count != 251 {
		t.Errorf("%d workspaces are being stopped, %v; want 251", got.Count, err)
	}
}

// TestFailedAutostopIsTriedAgain checks that the server retries an automatic stop that failed, later each time, until the
// workspace is stopped or a person builds it.
func TestFailedAutostopIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	now := time.Now()
	w.Exec(`UPDATE workspace_builds SET deadline = $1 WHERE workspace_id = $2`, now, ws.ID)
	number := func() int32 { t.Helper(); return w.Get(ws.ID).LatestBuild.BuildNumber }
	run := func(at time.Time, want int32) {
		t.Helper()
		if err := w.Workspaces.RunSchedule(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		if got := number(); got != want {
			t.Fatalf("%s after the deadline: build %d, want %d", at.Sub(now), got, want)
		}
	}
	broken := func() {
		result := coderdtest.Built("s")
		result.Error = "cannot be stopped"
		w.Daemon().Next().Finish(result)
		testwait.Until(t, "the stop has failed", w.Is(ws.ID, sdk.WorkspaceFailed))
	}
	run(now, 2)
	broken()
	run(now.Add(59*time.Second), 2)
	run(now.Add(61*time.Second), 3)
	broken()
	run(now.Add(2*time.Minute), 3)
	run(now.Add(4*time.Minute), 4)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	if got := w.Get(ws.ID).LatestBuild.Status; got != sdk.WorkspaceStopped {
		t.Fatalf("the workspace is %s", got)
	}
	run(now.Add(48*time.Hour), 4)

	// The server does not repeat a build that a person ordered, because that person sees it; a new start counts from zero.
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	w.Build("ann", ws.ID, sdk.TransitionStop)
	broken()
	run(now.Add(48*time.Hour), 6)
	var tries int
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT tries FROM workspace_policy WHERE workspace_id = $1`, ws.ID).Scan(&tries); err != nil || tries != 0 {
		t.Errorf("%d tries after a build by a person, %v", tries, err)
	}
}

// TestLatestBuildIsKept checks that a workspace's row describes its latest build as the builds and jobs do, whatever
// happened.
func TestLatestBuildIsKept(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	check := func(when string) {
		t.Helper()
		var wrong int
		if err := w.DB.Pool.QueryRow(t.Context(), `
			SELECT count(*) FROM workspaces w
			LEFT JOIN LATERAL (SELECT * FROM workspace_builds b WHERE b.workspace_id = w.id ORDER BY b.build_number DESC LIMIT 1) b ON true
			LEFT JOIN provisioner_jobs j ON j.id = b.job_id
			WHERE (w.latest_build_id, w.latest_build_number, w.latest_version_id, w.latest_transition, w.latest_reason, w.latest_status, w.latest_deadline, w.latest_ended_at)
				IS DISTINCT FROM (b.id, b.build_number, b.template_version_id, b.transition, b.reason, j.status, b.deadline, j.completed_at)`).Scan(&wrong); err != nil || wrong != 0 {
			t.Errorf("%s: %d rows are wrong, %v", when, wrong, err)
		}
	}
	ws := w.Workspace("ann", "dev", template.ID)
	check("created")
	job := w.Daemon().Next()
	check("running")
	job.Finish(coderdtest.Built("s", coderdtest.Resource(uuid.New())))
	check("started")
	if err := w.As("ann").UpdateTTL(t.Context(), ws.ID, sdk.UpdateTTLRequest{TTLMillis: ptr[int64](600_000)}); err != nil {
		t.Fatal(err)
	}
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	check("with a deadline")
	if err := w.As("ann").WorkspaceUsage(t.Context(), ws.ID, sdk.UsageRequest{}); err != nil {
		t.Fatal(err)
	}
	check("used")
	stop := w.Build("ann", ws.ID, sdk.TransitionStop)
	if err := w.As("ann").CancelBuild(t.Context(), stop.ID); err != nil {
		t.Fatal(err)
	}
	check("canceled")
	w.Build("ann", ws.ID, sdk.TransitionDelete)
	w.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{}}})
	check("deleted")
	// The migration computes the same for workspaces that existed before it.
	text, err := fs.ReadFile(database.Migrations(), "0014_workspace_latest.sql")
	if err != nil {
		t.Fatal(err)
	}
	backfill := regexp.MustCompile(`(?s)\nUPDATE workspaces w SET latest_build_id = b\.id,.*?;`).Find(text)
	w.Workspace("bob", "dev", template.ID)
	w.Exec(`UPDATE workspaces SET latest_build_id = NULL, latest_build_number = 0, latest_version_id = NULL, latest_transition = '', latest_reason = '',
		latest_status = '', latest_deadline = NULL, latest_ended_at = NULL`)
	w.Exec(string(backfill))
	check("migrated")
}
