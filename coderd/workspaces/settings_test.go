package workspaces_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func TestSettings(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	w.Workspace("ann", "other", template.ID)
	ann := w.As("ann")
	for _, tt := range []struct {
		method, path string
		body         any
		want         int
	}{
		{"PATCH", "", sdk.UpdateWorkspaceRequest{Name: "renamed"}, 204},
		{"PATCH", "", sdk.UpdateWorkspaceRequest{Name: "no spaces"}, 400},
		{"PATCH", "", sdk.UpdateWorkspaceRequest{Name: "Other"}, 409},
		{"PUT", "/autostart", sdk.UpdateAutostartRequest{Schedule: ptr("CRON_TZ=UTC 30 9 * * 1-5")}, 204},
		{"PUT", "/autostart", sdk.UpdateAutostartRequest{Schedule: ptr("0 9 1 1 *")}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": 7200_000}, 204},
		{"PUT", "/ttl", map[string]any{"ttl_ms": 1}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": int64(1) << 60}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": int64(math.MaxInt64)}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": -1}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": json.RawMessage("1e400")}, 400},
		{"PUT", "/ttl", map[string]any{"ttl_ms": "long"}, 400},
		{"PUT", "/extend", sdk.ExtendRequest{Deadline: time.Now().Add(time.Hour)}, 409}, // it has no deadline
		{"PUT", "/autoupdates", map[string]any{"automatic_updates": "often"}, 400},
		{"PUT", "/favorite", nil, 204},
		{"PUT", "/favorite", nil, 204},
		{"POST", "/usage", sdk.UsageRequest{}, 204},
	} {
		if got := call(t, w, "ann", tt.method, "workspaces/"+ws.ID.String()+tt.path, tt.body, nil); got != tt.want {
			t.Errorf("%s %s %+v: got %d, want %d", tt.method, tt.path, tt.body, got, tt.want)
		}
	}
	got, err := ann.Workspace(t.Context(), ws.ID)
	if err != nil || got.Name != "renamed" || *got.AutostartSchedule != "CRON_TZ=UTC 30 9 * * 1-5" || *got.TTLMillis != 7200_000 || !got.Favorite {
		t.Errorf("workspace: %+v, %v", got, err)
	}
	if seen := w.Get(ws.ID); seen.Favorite {
		t.Error("one user's favorite is another's too")
	}
}

func TestDeadline(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	ann := w.As("ann")
	if err := ann.UpdateTTL(t.Context(), ws.ID, sdk.UpdateTTLRequest{TTLMillis: ptr[int64](600_000)}); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild.Deadline; got != nil {
		t.Errorf("a new time to live counts at once: %v", got)
	}
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	first := w.Get(ws.ID).LatestBuild.Deadline
	if first == nil {
		t.Fatal("no deadline")
	}
	// Use moves the deadline.
	if err := ann.WorkspaceUsage(t.Context(), ws.ID, sdk.UsageRequest{}); err != nil {
		t.Fatal(err)
	}
	bumped := w.Get(ws.ID).LatestBuild.Deadline
	if bumped == nil || bumped.Sub(*first) < 30*time.Minute {
		t.Errorf("deadline after use: %v, before %v", bumped, first)
	}
	wanted := time.Now().Add(5 * time.Hour).Truncate(time.Second)
	if err := ann.ExtendWorkspace(t.Context(), ws.ID, sdk.ExtendRequest{Deadline: wanted}); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild.Deadline; !got.Equal(wanted) {
		t.Errorf("extended deadline: %v, want %v", got, wanted)
	}
	if err := ann.ExtendWorkspace(t.Context(), ws.ID, sdk.ExtendRequest{Deadline: time.Now().Add(-time.Hour)}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("deadline in the past: %v, want invalid", err)
	}

	if err := w.Workspaces.RunSchedule(t.Context(), wanted.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild.Transition; got != sdk.TransitionStart {
		t.Errorf("before the deadline: %s", got)
	}
	for range 2 { // like two replicas
		if err := w.Workspaces.RunSchedule(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
	}
	stop := w.Get(ws.ID).LatestBuild
	if stop.Transition != sdk.TransitionStop || stop.Reason != sdk.ReasonAutostop || stop.InitiatorName != "ann" || stop.BuildNumber != 3 {
		t.Errorf("at the deadline: %+v", stop)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))

	schedule := "* * * * *"
	if err := ann.UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: &schedule}); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).NextStartAt; got == nil {
		t.Error("no next start")
	}
	if err := w.Workspaces.RunSchedule(t.Context(), time.Now().Add(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild; got.Transition != sdk.TransitionStart || got.Reason != sdk.ReasonAutostart {
		t.Errorf("on schedule: %+v", got)
	}
}
