package workspaces_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestRestoreState checks what a list of states shows, who may see it, and that a restore builds from the chosen state as the latest build did.
func TestRestoreState(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tmpl := w.Template("plain", &provisionerpb.ImportResult{})
	ws := w.Workspace("ann", "dev", tmpl.ID)
	good, second := stateText("own", 7, 2), stateText("own", 9, 5)
	w.Daemon().Next().Finish(coderdtest.Built(good))
	first := w.Get(ws.ID).LatestBuild.ID
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built(second))
	olga := w.As("olga")
	got, err := olga.States(t.Context(), ws.ID)
	if err != nil || len(got) != 2 {
		t.Fatalf("states: %+v, %v", got, err)
	}
	latest := w.Get(ws.ID).LatestBuild.ID
	ann := w.User("ann")
	want := []sdk.StoredState{
		{BuildID: latest, BuildNumber: 2, Transition: sdk.TransitionStop, JobStatus: sdk.JobSucceeded, CreatedAt: got[0].CreatedAt, InitiatorID: ann, InitiatorName: "ann",
			Lineage: "own", Serial: 9, Resources: 5, Size: int64(len(second))},
		{BuildID: first, BuildNumber: 1, Transition: sdk.TransitionStart, JobStatus: sdk.JobSucceeded, CreatedAt: got[1].CreatedAt, InitiatorID: ann, InitiatorName: "ann",
			Lineage: "own", Serial: 7, Resources: 2, Size: int64(len(good))},
	}
	if diff := cmp.Diff(want, got); diff != "" || got[1].CreatedAt.IsZero() {
		t.Errorf("states (-want +got):\n%s", diff)
	}

	// The workspace's own user and template admins see no states and restore none. Others do not see the workspace.
	for user, code := range map[string]fault.Code{"ann": fault.Forbidden, "tom": fault.Forbidden, "bob": fault.NotFound} {
		if got, err := w.As(user).States(t.Context(), ws.ID); fault.CodeOf(err) != code {
			t.Errorf("%s lists %+v, %v; want %s", user, got, err, code)
		}
		if _, err := w.As(user).RestoreState(t.Context(), first, sdk.RestoreStateRequest{}); fault.CodeOf(err) != code {
			t.Errorf("%s restores: %v, want %s", user, err, code)
		}
	}
	if _, err := olga.RestoreState(t.Context(), uuid.New(), sdk.RestoreStateRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a build that is not there: %v", err)
	}

	build, err := olga.RestoreState(t.Context(), first, sdk.RestoreStateRequest{Reason: sdk.ReasonDashboard})
	if err != nil || build.BuildNumber != 3 || build.Transition != sdk.TransitionStop || build.Reason != sdk.ReasonDashboard {
		t.Fatalf("restore: build %d, %s, %s, %v", build.BuildNumber, build.Transition, build.Reason, err)
	}
	if _, err := olga.RestoreState(t.Context(), first, sdk.RestoreStateRequest{}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a restore while the build waits: %v", err)
	}
	job := w.Daemon().Next()
	if got := string(job.GetWorkspaceBuild().GetState()); got != good {
		t.Errorf("the build starts from %s, want %s", got, good)
	}
	job.Finish(coderdtest.Built(good))

	// What cannot be used says why, and is refused.
	w.Exec("UPDATE workspace_builds SET state = '', state_removed_at = now() WHERE id = $1", first)
	w.Exec("UPDATE workspace_builds SET state = '\\x00' WHERE id = $1", latest)
	got, err = olga.States(t.Context(), ws.ID)
	if err != nil || len(got) != 3 || !strings.Contains(got[2].Problem, "The state of build 1 was removed on ") || got[1].Problem == "" || got[0].Problem != "" || got[1].Size != 0 {
		t.Errorf("states without the first: %+v, %v", got, err)
	}
	for _, id := range []uuid.UUID{first, latest} {
		if _, err := olga.RestoreState(t.Context(), id, sdk.RestoreStateRequest{}); fault.CodeOf(err) != fault.NotFound && fault.CodeOf(err) != fault.Conflict {
			t.Errorf("restore of a state that cannot be used: %v", err)
		}
	}
}
