package workspaces_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// plans is a server with a running workspace, a newer version of its template, and what both find.
type plans struct {
	*coderdtest.Server
	t      *testing.T
	ws     sdk.Workspace
	second sdk.TemplateVersion
}

func newPlans(t *testing.T) *plans {
	t.Helper()
	w := coderdtest.New(t)
	found := process()
	found.StartResources = []*provisionerpb.Resource{{Type: "docker_volume", Name: "home"}, {Type: "docker_container", Name: "dev"}}
	found.StopResources = []*provisionerpb.Resource{{Type: "docker_volume", Name: "home"}}
	template := w.Template("process", found)
	ws, _ := w.Running("ann", "dev", template.ID)
	second := w.Version(&template.ID, found)
	if err := w.As("tom").UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: second.ID}); err != nil {
		t.Fatal(err)
	}
	return &plans{w, t, w.Get(ws.ID), second}
}

func (p *plans) create(user string, req sdk.CreatePlanRequest) sdk.WorkspacePlan {
	p.t.Helper()
	plan, err := p.As(user).CreatePlan(p.t.Context(), p.ws.ID, req)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan
}

func (p *plans) get(id uuid.UUID) sdk.WorkspacePlan {
	p.t.Helper()
	plan, err := p.As("ann").Plan(p.t.Context(), p.ws.ID, id)
	if err != nil {
		p.t.Fatal(err)
	}
	return plan
}

func (p *plans) state() string {
	p.t.Helper()
	var state strings.Builder
	if err := p.As("olga").BuildState(p.t.Context(), p.Get(p.ws.ID).LatestBuild.ID, &state); err != nil {
		p.t.Fatal(err)
	}
	return state.String()
}

// change returns a planned change of a resource that may hold data.
func change(address string, action provisionerpb.PlannedChange_Action, attributes ...string) *provisionerpb.PlannedChange {
	typ, name, _ := strings.Cut(address, ".")
	return &provisionerpb.PlannedChange{
		Address: address, Type: typ, Name: name, Action: action, Attributes: attributes, HoldsData: true,
	}
}

func found(changes ...*provisionerpb.PlannedChange) *provisionerpb.Result {
	return &provisionerpb.Result{Of: &provisionerpb.Result_TemplateDryRun{TemplateDryRun: &provisionerpb.DryRunResult{
		Plan: &provisionerpb.ChangePlan{Changes: changes},
	}}}
}

// TestPlan follows a plan: the provisioner gets the workspace's state and values, the result says what is lost, and the
// workspace stays as it is.
func TestPlan(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	ann, before := p.As("ann"), p.ws.LatestBuild
	plan := p.create("ann", sdk.CreatePlanRequest{RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "8"}}})
	if plan.TemplateVersionID != p.second.ID || plan.Job.Type != sdk.JobTemplateDryRun || *plan.Job.Metadata.WorkspaceID != p.ws.ID || plan.ID != plan.Job.ID {
		t.Errorf("created %+v", plan)
	}
	job := p.Daemon().Next()
	offered := job.GetTemplateDryRun()
	if got := string(offered.GetExisting().GetState()); got != "state 1" {
		t.Errorf("the plan starts from %q", got)
	}
	m := offered.GetMetadata()
	if m.GetOwnerName() != "ann" || uuid.UUID(m.GetWorkspaceId()) != p.ws.ID || m.GetTemplateVersion() != p.second.Name || m.GetOwnerSessionToken() != "" {
		t.Errorf("the plan gets %+v", m)
	}
	given := map[string]string{}
	for _, v := range offered.GetParameters() {
		given[v.GetName()] = v.GetValue()
	}
	if given["cpus"] != "8" || given["region"] != "eu" {
		t.Errorf("the plan gets the values %v", given)
	}
	job.Checkpoint(stateText("other", 9, 1)) // a provisioner that stores a state achieves nothing
	job.Finish(found(
		change("docker_volume.home", provisionerpb.PlannedChange_ACTION_REPLACE, "name"),
		change("docker_container.dev", provisionerpb.PlannedChange_ACTION_REPLACE, "image"),
		change("docker_network.new", provisionerpb.PlannedChange_ACTION_CREATE),
		change("docker_network.old", provisionerpb.PlannedChange_ACTION_DELETE),
		change("null_resource.same", provisionerpb.PlannedChange_ACTION_NO_OP),
		change("null_resource.strange", provisionerpb.PlannedChange_Action(99)),
	))
	got := p.get(plan.ID)
	want := sdk.List[sdk.PlannedChange]{
		{Address: "docker_volume.home", Type: "docker_volume", Name: "home", Action: sdk.PlanReplace, Attributes: sdk.List[string]{"name"}, LosesData: true},
		{Address: "docker_container.dev", Type: "docker_container", Name: "dev", Action: sdk.PlanReplace, Attributes: sdk.List[string]{"image"}},
		{Address: "docker_network.new", Type: "docker_network", Name: "new", Action: sdk.PlanCreate, Attributes: sdk.List[string]{}},
		{Address: "docker_network.old", Type: "docker_network", Name: "old", Action: sdk.PlanDelete, Attributes: sdk.List[string]{}, LosesData: true},
		{Address: "null_resource.same", Type: "null_resource", Name: "same", Action: sdk.PlanNoOp, Attributes: sdk.List[string]{}},
	}
	if diff := cmp.Diff(want, got.Changes); diff != "" || got.Job.Status != sdk.JobSucceeded {
		t.Errorf("%+v\nchanges (-want +got):\n%s", got.Job, diff)
	}
	if after := p.Get(p.ws.ID).LatestBuild; after.ID != before.ID || after.TemplateVersionID != before.TemplateVersionID || after.Status != before.Status {
		t.Errorf("the plan made of the build %+v", after)
	}
	if got := p.state(); got != "state 1" {
		t.Errorf("the plan left the state %q", got)
	}
	// It is no dry run of the version, and belongs to no other workspace.
	if _, err := ann.DryRun(t.Context(), p.second.ID, plan.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("as a dry run: %v", err)
	}
	other := p.Workspace("ann", "other", p.ws.TemplateID)
	if _, err := ann.Plan(t.Context(), other.ID, plan.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("at another workspace: %v", err)
	}
	p.Exec(`DELETE FROM provisioner_jobs WHERE id = $1`, plan.ID) // as retention does
	if _, err := ann.Plan(t.Context(), p.ws.ID, plan.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("after its job was removed: %v", err)
	}
}

// TestPlanThatFails checks what a plan says that failed, or that a provisioner ran which knows only dry runs.
func TestPlanThatFails(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	for want, result := range map[string]*provisionerpb.Result{
		"no such image": {Error: "no such image"},
		"upgrade it":    {Of: &provisionerpb.Result_TemplateDryRun{TemplateDryRun: &provisionerpb.DryRunResult{Resources: []*provisionerpb.Resource{{Type: "docker_volume", Name: "home"}}}}},
	} {
		plan := p.create("ann", sdk.CreatePlanRequest{})
		p.Daemon().Next().Finish(result)
		if got := p.get(plan.ID); got.Job.Status != sdk.JobFailed || !strings.Contains(got.Job.Error, want) || len(got.Changes) > 0 {
			t.Errorf("got %+v, want %s", got, want)
		}
	}
	// An older server stored it as a dry run that succeeded.
	plan := p.create("ann", sdk.CreatePlanRequest{})
	p.Daemon().Next().Finish(found())
	p.Exec(`UPDATE workspace_plans SET changes = NULL WHERE job_id = $1`, plan.ID)
	if got := p.get(plan.ID); got.Job.Status != sdk.JobFailed || got.Job.Error == "" {
		t.Errorf("got %+v", got.Job)
	}
}

// TestPlansYield checks that a build cancels the workspace's plans, that none begins while a build is active, and that a
// new plan takes the place of an earlier one.
func TestPlansYield(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	is := func(id uuid.UUID, want sdk.JobStatus) {
		t.Helper()
		if got := p.get(id).Job.Status; got != want {
			t.Errorf("the plan is %s, want %s", got, want)
		}
	}
	waiting := p.create("ann", sdk.CreatePlanRequest{})
	second := p.create("ann", sdk.CreatePlanRequest{})
	is(waiting.ID, sdk.JobCanceled)
	job := p.Daemon().Next()
	third := p.create("ann", sdk.CreatePlanRequest{})
	is(second.ID, sdk.JobCanceling)
	running := p.Daemon().Next()
	is(third.ID, sdk.JobRunning)
	// Two that have not ended are enough.
	if _, err := p.As("ann").CreatePlan(t.Context(), p.ws.ID, sdk.CreatePlanRequest{}); fault.CodeOf(err) != fault.Conflict || !strings.Contains(err.Error(), "Earlier plans") {
		t.Errorf("a fourth plan: %v", err)
	}
	is(third.ID, sdk.JobRunning)
	job.Finish(&provisionerpb.Result{Canceled: true, Error: "canceled"})
	is(second.ID, sdk.JobCanceled)

	build, err := p.As("ann").CreateBuild(t.Context(), p.ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop})
	if err != nil {
		t.Fatal(err)
	}
	is(third.ID, sdk.JobCanceling)
	for _, active := range []string{"pending", "running"} {
		_, err := p.As("ann").CreatePlan(t.Context(), p.ws.ID, sdk.CreatePlanRequest{})
		if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Error(), "Another build") {
			t.Errorf("a plan while a build is %s: %v", active, err)
		}
		if active == "pending" {
			p.Daemon().Next()
		}
	}
	// What the provisioner of the canceled plan found is not shown.
	running.Finish(&provisionerpb.Result{Canceled: true, Error: "canceled"})
	is(third.ID, sdk.JobCanceled)
	if got := p.Get(p.ws.ID).LatestBuild; got.ID != build.ID {
		t.Errorf("the latest build is %d", got.BuildNumber)
	}
}

// TestPlanOfStoppedWorkspace checks that all that a stopped workspace has is kept, except what its stop created.
func TestPlanOfStoppedWorkspace(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	p.Build("ann", p.ws.ID, sdk.TransitionStop)
	stopped := coderdtest.Built("state 2")
	stopped.GetWorkspaceBuild().Created = []string{"docker_network.anew"}
	p.Daemon().Next().Finish(stopped)
	plan := p.create("ann", sdk.CreatePlanRequest{})
	job := p.Daemon().Next()
	if got := string(job.GetTemplateDryRun().GetExisting().GetState()); got != "state 2" {
		t.Errorf("the plan starts from %q", got)
	}
	job.Finish(found(
		change("docker_container.dev", provisionerpb.PlannedChange_ACTION_REPLACE), // all that a stopped workspace has is kept
		change("docker_network.anew", provisionerpb.PlannedChange_ACTION_REPLACE),
	))
	lost := map[string]bool{}
	for _, c := range p.get(plan.ID).Changes {
		lost[c.Address] = c.LosesData
	}
	if diff := cmp.Diff(map[string]bool{"docker_container.dev": true, "docker_network.anew": false}, lost); diff != "" {
		t.Errorf("lost (-want +got):\n%s", diff)
	}
}

// TestPlansThatAreRefused checks requests that no plan answers. Which users may plan is part of the permission table's
// test.
func TestPlansThatAreRefused(t *testing.T) {
	t.Parallel()
	p := newPlans(t)
	foreign := p.Template("other", process())
	for name, c := range map[string]struct {
		user string
		req  sdk.CreatePlanRequest
		want fault.Code
	}{
		"another member":        {"bob", sdk.CreatePlanRequest{}, fault.NotFound},
		"another's version":     {"ann", sdk.CreatePlanRequest{TemplateVersionID: foreign.ActiveVersionID}, fault.Invalid},
		"unknown version":       {"ann", sdk.CreatePlanRequest{TemplateVersionID: uuid.New()}, fault.Invalid},
		"a value that is fixed": {"ann", sdk.CreatePlanRequest{RichParameterValues: []sdk.ParameterValue{{Name: "region", Value: "us"}}}, fault.Invalid},
		"an unknown value":      {"ann", sdk.CreatePlanRequest{RichParameterValues: []sdk.ParameterValue{{Name: "color", Value: "red"}}}, fault.Invalid},
	} {
		if _, err := p.As(c.user).CreatePlan(t.Context(), p.ws.ID, c.req); fault.CodeOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	p.Build("ann", p.ws.ID, sdk.TransitionDelete)
	p.Daemon().Next().Finish(coderdtest.Built(""))
	testwait.Until(t, "the workspace is deleted", p.Counts(1, `SELECT count(*) FROM workspaces WHERE id = $1 AND deleted_at IS NOT NULL`, p.ws.ID))
	if _, err := p.As("olga").CreatePlan(t.Context(), p.ws.ID, sdk.CreatePlanRequest{}); fault.CodeOf(err) != fault.Conflict && fault.CodeOf(err) != fault.NotFound {
		t.Errorf("of a deleted workspace: %v", err)
	}
}
