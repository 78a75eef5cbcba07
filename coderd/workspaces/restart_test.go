package workspaces_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestRestartIsCheckedBeforeTheStop checks that the server refuses an impossible start while the workspace still runs.
func TestRestartIsCheckedBeforeTheStop(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	foreign := w.Template("other", process())
	for name, req := range map[string]sdk.CreateBuildRequest{
		"value":     {RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "9"}}},
		"immutable": {RichParameterValues: []sdk.ParameterValue{{Name: "region", Value: "us"}}},
		"unknown":   {RichParameterValues: []sdk.ParameterValue{{Name: "color", Value: "red"}}},
		"version":   {TemplateVersionID: foreign.ActiveVersionID},
		"preset":    {TemplateVersionPresetID: uuid.New()},
		"stop":      {Transition: sdk.TransitionStop},
		"tags":      {ProvisionerTags: map[string]string{"scope": "user"}},
	} {
		if _, err := w.As("ann").Restart(t.Context(), ws.ID, req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if _, err := w.As("bob").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{}); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another's workspace: %v, want not found", err)
	}
	if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != 1 || got.Status != sdk.WorkspaceRunning {
		t.Errorf("after what was refused: build %d %s, want build 1 running", got.BuildNumber, got.Status)
	}
}

// TestRestartStartsAgain checks that the server begins the start itself: no client waits for the stop.
func TestRestartStartsAgain(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	second := w.Version(&template.ID, process())
	build, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{
		TemplateVersionID: second.ID, Reason: sdk.ReasonDashboard,
		RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "4"}, {Name: "once", Value: "yes"}},
	})
	if err != nil || build.Transition != sdk.TransitionStop || build.BuildNumber != 2 || build.TemplateVersionID != template.ActiveVersionID {
		t.Fatalf("restart: build %d, %s: %v, want the stop with the old version as build 2", build.BuildNumber, build.Transition, err)
	}
	if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("restart while it stops: %v, want conflict", err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("stopped"))
	start := w.Daemon().Next()
	got := map[string]string{}
	for _, p := range start.GetWorkspaceBuild().GetParameters() {
		got[p.GetName()] = p.GetValue()
	}
	if diff := cmp.Diff(map[string]string{"cpus": "4", "region": "eu", "once": "yes"}, got); diff != "" {
		t.Errorf("parameters of the start (-want +got):\n%s", diff)
	}
	start.Finish(coderdtest.Built("started"))
	latest := w.Get(ws.ID).LatestBuild
	if latest.BuildNumber != 3 || latest.Status != sdk.WorkspaceRunning || latest.TemplateVersionID != second.ID || latest.Reason != sdk.ReasonDashboard {
		t.Errorf("after the restart: build %d %s, version %s, reason %s", latest.BuildNumber, latest.Status, latest.TemplateVersionName, latest.Reason)
	}
}

// TestRestartEndsWithItsStop checks that a stop that fails or is canceled is not followed by a start.
func TestRestartEndsWithItsStop(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	for name, result := range map[string]*provisionerpb.Result{"failed": {Error: "boom"}, "canceled": {Canceled: true}} {
		ws, _ := w.Running("ann", name, template.ID)
		if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{}); err != nil {
			t.Fatal(err)
		}
		w.Daemon().Next().Finish(result)
		if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != 2 || string(got.Status) != name {
			t.Errorf("%s stop: build %d is %s", name, got.BuildNumber, got.Status)
		}
	}
}

// TestRestartOfStopped checks that a stopped workspace starts at once, and a workspace whose start became impossible stays
// stopped.
func TestRestartOfStopped(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("stopped"))
	build, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{})
	if err != nil || build.Transition != sdk.TransitionStart || build.BuildNumber != 3 {
		t.Fatalf("restart of a stopped workspace: build %d %s, %v", build.BuildNumber, build.Transition, err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("started"))

	second := w.Version(&template.ID, process())
	if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{TemplateVersionID: template.ActiveVersionID}); err != nil {
		t.Fatal(err)
	}
	w.Exec("UPDATE templates SET active_version_id = $1, require_active_version = true WHERE id = $2", second.ID, template.ID)
	w.Daemon().Next().Finish(coderdtest.Built("stopped again"))
	if got := w.Get(ws.ID).LatestBuild; got.BuildNumber != 4 || got.Status != sdk.WorkspaceStopped {
		t.Errorf("start that became impossible: build %d is %s, want 4 stopped", got.BuildNumber, got.Status)
	}
}

// TestPresetOfBuild checks that a build reports which preset its parameters came from.
func TestPresetOfBuild(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	presets, err := w.As("ann").TemplateVersionPresets(t.Context(), template.ActiveVersionID)
	if err != nil || len(presets) != 1 {
		t.Fatalf("presets: %v, %v", presets, err)
	}
	ws, err := w.As("ann").CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "dev", TemplateVersionPresetID: presets[0].ID})
	if err != nil || ws.LatestBuild.TemplateVersionPresetID == nil || *ws.LatestBuild.TemplateVersionPresetID != presets[0].ID {
		t.Fatalf("build with a preset: %v, %v", ws.LatestBuild.TemplateVersionPresetID, err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{TemplateVersionPresetID: presets[0].ID}); err != nil {
		t.Fatal(err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	if got := w.Get(ws.ID).LatestBuild.TemplateVersionPresetID; got == nil || *got != presets[0].ID {
		t.Errorf("restart with a preset: %v", got)
	}
	if build := w.Build("ann", ws.ID, sdk.TransitionStop); build.TemplateVersionPresetID != nil {
		t.Errorf("stop: preset %v, want none", build.TemplateVersionPresetID)
	}
}
