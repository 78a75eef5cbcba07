package metrics_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

// TestDeploymentStats: workspaces are counted by their latest build, and only owners of the deployment read that.
func TestDeploymentStats(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", nil)
	for name, state := range map[string][2]string{
		"one": {"start", "succeeded"}, "two": {"start", "succeeded"}, "three": {"stop", "succeeded"}, "four": {"start", "failed"}, "five": {"stop", "pending"}, "six": {"start", "running"},
	} {
		ws, _ := w.Running("ann", name, template.ID)
		w.Exec("UPDATE workspace_builds SET transition = $2 WHERE workspace_id = $1", ws.ID, state[0])
		w.Exec("UPDATE provisioner_jobs SET status = $2, started_at = now(), completed_at = CASE WHEN $2 IN ('pending', 'running') THEN NULL ELSE completed_at END, tags = '{\"of\":\"nobody\"}' WHERE id IN (SELECT job_id FROM workspace_builds WHERE workspace_id = $1)", ws.ID, state[1])
	}
	for _, user := range []string{"ann", "tom"} {
		if _, err := w.As(user).DeploymentStats(t.Context()); fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: got %v, want a refusal", user, err)
		}
	}
	got, err := w.As("olga").DeploymentStats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := sdk.WorkspaceDeploymentStats{Pending: 1, Building: 1, Running: 2, Failed: 1, Stopped: 1}
	if diff := cmp.Diff(want, got.Workspaces); diff != "" || !got.NextUpdateAt.After(got.CollectedAt) {
		t.Errorf("%+v (-want +got):\n%s", got, diff)
	}
	if again, err := w.As("olga").DeploymentStats(t.Context()); err != nil || !again.CollectedAt.Equal(got.CollectedAt) {
		t.Errorf("again: %+v, %v, want the same counts", again, err)
	}
}
