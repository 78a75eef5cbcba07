package workspaces_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/rbac"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// replaces returns the result of a start that was refused because of what it would replace.
func replaces(state string, resources []*provisionerpb.Resource, addrs ...string) *provisionerpb.Result {
	result := coderdtest.Built(state, resources...)
	result.Error, result.ErrorCode = "this start would replace "+strings.Join(addrs, ", "), string(sdk.JobErrorReplaces)
	result.GetWorkspaceBuild().Replaces = addrs
	return result
}

// offered returns what a job may replace: "all", or the addresses, "stopped" if the state has only what is kept, and "same" for a stop with the
// version and values that the workspace runs with.
func offered(job *coderdtest.Job) string {
	r := job.GetWorkspaceBuild().GetReplacement()
	if r == nil {
		return "all"
	}
	text := strings.Join(r.GetAllowed(), " ")
	if fresh := r.GetFresh(); len(fresh) > 0 {
		text += " fresh:" + strings.Join(fresh, ",")
	}
	if r.GetStopped() {
		text += " stopped"
	}
	if r.GetSame() && job.GetWorkspaceBuild().GetTransition() == provisionerpb.Transition_TRANSITION_STOP {
		text += " same"
	}
	return strings.TrimSpace(text)
}

// TestRefusedReplacement follows an update that would replace a disk: it leaves the workspace with its version and parameters, and goes on with
// permission for this one build.
func TestRefusedReplacement(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	ann := w.As("ann")
	before, err := ann.BuildParameters(t.Context(), ws.LatestBuild.ID)
	if err != nil {
		t.Fatal(err)
	}
	second := w.Version(&template.ID, process())
	if err := w.As("tom").UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: second.ID}); err != nil {
		t.Fatal(err)
	}
	update := sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, TemplateVersionID: second.ID, AllowReplacing: []string{},
		RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "4"}},
	}
	if _, err := ann.Restart(t.Context(), ws.ID, update); err != nil {
		t.Fatal(err)
	}
	stopped := coderdtest.Built("stopped")
	stopped.GetWorkspaceBuild().Created = []string{"hook"}
	w.Daemon().Next().Finish(stopped)
	job := w.Daemon().Next()
	if got := offered(job); got != "fresh:hook stopped" {
		t.Errorf("the start may replace %q", got)
	}
	job.Finish(replaces("stopped", nil, "disk.home", "disk.cache"))
	got := w.Get(ws.ID)
	if b := got.LatestBuild; b.BuildNumber != 3 || b.Job.ErrorCode != sdk.JobErrorReplaces || b.TemplateVersionID != template.ActiveVersionID || !got.Outdated {
		t.Errorf("refused: build %d, code %q, version %s, outdated %t", b.BuildNumber, b.Job.ErrorCode, b.TemplateVersionName, got.Outdated)
	}
	if diff := cmp.Diff([]string{"disk.home", "disk.cache"}, got.LatestBuild.WouldReplace); diff != "" {
		t.Errorf("would replace (-want +got):\n%s", diff)
	}
	after, err := ann.BuildParameters(t.Context(), got.LatestBuild.ID)
	if diff := cmp.Diff(before, after); err != nil || diff != "" {
		t.Errorf("parameters, %v (-before +after):\n%s", err, diff)
	}

	update.AllowReplacing = got.LatestBuild.WouldReplace
	if _, err := ann.CreateBuild(t.Context(), ws.ID, update); err != nil {
		t.Fatal(err)
	}
	job = w.Daemon().Next()
	if got := offered(job); got != "disk.home disk.cache fresh:hook stopped" || string(job.GetWorkspaceBuild().GetState()) != "stopped" {
		t.Errorf("with permission the start may replace %q of the state %q", got, job.GetWorkspaceBuild().GetState())
	}
	job.Finish(coderdtest.Built("moved"))
	if b := w.Get(ws.ID).LatestBuild; b.Status != sdk.WorkspaceRunning || b.TemplateVersionID != second.ID || len(b.AllowReplacing) != 2 || b.WouldReplace != nil {
		t.Errorf("with permission: %s, version %s, allowed %q", b.Status, b.TemplateVersionName, b.AllowReplacing)
	}
	var allowed []string
	if err := w.DB.Pool.QueryRow(t.Context(), `SELECT array(SELECT jsonb_array_elements_text(additional_fields->'allow_replacing')) FROM audit_logs
		WHERE resource_id = $1 AND additional_fields ? 'allow_replacing'`, ws.ID).Scan(&allowed); err != nil || len(allowed) != 2 {
		t.Errorf("the audit log has %q, %v", allowed, err)
	}

	w.Build("ann", ws.ID, sdk.TransitionStart)
	if got := offered(w.Daemon().Next()); got != "" {
		t.Errorf("the next start may replace %q", got)
	}
}

// TestTemplateAllowsReplacing checks that a template decides for starts without a question, and only for those.
func TestTemplateAllowsReplacing(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	stop := func() {
		t.Helper()
		w.Build("ann", ws.ID, sdk.TransitionStop)
		w.Daemon().Next().Finish(coderdtest.Built("s"))
	}
	stop()
	if err := w.As("ann").UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: ptr("CRON_TZ=UTC 30 9 * * *")}); err != nil {
		t.Fatal(err)
	}
	schedule(t, w, *w.Get(ws.ID).NextStartAt)
	job := w.Daemon().Next()
	if got := offered(job); got != "stopped" {
		t.Errorf("an automatic start may replace %q", got)
	}
	job.Finish(replaces("s", nil, "disk.home"))
	if err := w.Notifications.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := w.As("ann").Inbox(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(list); !strings.Contains(string(text), "disk.home") {
		t.Errorf("the owner was not told what the start would replace: %s", text)
	}

	edit(t, w, template.ID, sdk.TemplatePolicy{AllowReplacingResources: ptr(true)})
	if got, err := w.As("ann").Template(t.Context(), template.ID); err != nil || !got.AllowReplacingResources {
		t.Errorf("the template allows it: %t, %v", got.AllowReplacingResources, err)
	}
	for want, req := range map[string]sdk.CreateBuildRequest{"all": {}, "stopped": {AllowReplacing: []string{}}} {
		req.Transition = sdk.TransitionStart
		if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, req); err != nil {
			t.Fatal(err)
		}
		job := w.Daemon().Next()
		if got := offered(job); got != want {
			t.Errorf("with permission of the template, the start %v may replace %q, want %q", req.AllowReplacing, got, want)
		}
		job.Finish(coderdtest.Built("s"))
		stop()
	}
}

// TestReplacingNeedsPermission checks that those who may only start a workspace cannot let it lose data.
func TestReplacingNeedsPermission(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	bob, err := w.As("bob").User(t.Context(), sdk.Me)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.As("ann").UpdateWorkspaceACL(t.Context(), ws.ID, sdk.UpdateWorkspaceACLRequest{UserRoles: map[string]string{bob.ID.String(): sdk.RoleAdmin}}); err != nil {
		t.Fatal(err)
	}
	req := sdk.CreateBuildRequest{Transition: sdk.TransitionStart, AllowReplacing: []string{"disk.home"}}
	if _, err := w.As("bob").CreateBuild(t.Context(), ws.ID, req); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a user with whom it is shared: %v, want forbidden", err)
	}
	if _, err := w.As("bob").Restart(t.Context(), ws.ID, req); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("restart: %v, want forbidden", err)
	}
	req.AllowReplacing = []string{}
	if _, err := w.As("bob").CreateBuild(t.Context(), ws.ID, req); err != nil {
		t.Errorf("a start that replaces nothing: %v", err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	stop := sdk.CreateBuildRequest{Transition: sdk.TransitionStop, AllowReplacing: []string{"disk.home"}}
	if _, err := w.As("bob").CreateBuild(t.Context(), ws.ID, stop); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("a stop: %v, want forbidden", err)
	}
	req.Transition = sdk.TransitionDelete
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, req); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a deletion: %v, want invalid", err)
	}
}

// TestRefusedReplacementOfRunning checks that the agents of a running workspace stay when a start is refused, and that those of another do not.
func TestRefusedReplacementOfRunning(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	admitted := func(agent uuid.UUID) bool {
		_, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent))
		return err == nil
	}
	ws, agent := w.Running("ann", "dev", template.ID)
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(replaces("state 1", []*provisionerpb.Resource{coderdtest.Resource(agent)}, "disk.home"))
	got := w.Get(ws.ID)
	if of := got.LatestBuild.Agents(); !got.Running() || !admitted(agent) || len(of) != 1 || of[0].ID != agent {
		t.Errorf("running %t, admitted %t: the running workspace lost its agent: %v", got.Running(), admitted(agent), of)
	}
	owner := rbac.Actor{UserID: got.OwnerID}
	if err := w.Agents.MayConnect(t.Context(), owner, agent); err != nil {
		t.Errorf("its owner: %v", err)
	}

	failed, agent := w.Running("ann", "failed", template.ID)
	w.Build("ann", failed.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(&provisionerpb.Result{Error: "boom"})
	w.Build("ann", failed.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(replaces("state 1", []*provisionerpb.Resource{coderdtest.Resource(agent)}, "disk.home"))
	if admitted(agent) || w.Get(failed.ID).Running() {
		t.Error("the agent of a failed workspace is admitted again")
	}

	stopped, agent := w.Running("ann", "stopped", template.ID)
	w.Build("ann", stopped.ID, sdk.TransitionStop)
	w.Daemon().Next().Finish(coderdtest.Built("stopped"))
	w.Build("ann", stopped.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(replaces("stopped", nil, "disk.home"))
	if admitted(agent) || w.Get(stopped.ID).Running() {
		t.Error("the agent of a stopped workspace is admitted again")
	}
}

// TestRefusedStop checks what stops may replace on every route, and that a refused one leaves the workspace with its version and parameters.
func TestRefusedStop(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	second := w.Version(&template.ID, process())
	if _, err := w.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DefaultTTLMillis: ptr(time.Hour.Milliseconds())}); err != nil {
		t.Fatal(err)
	}
	ws, _ := w.Running("ann", "dev", template.ID)
	ann := w.As("ann")
	number := w.Get(ws.ID).LatestBuild.BuildNumber
	refused := func(req sdk.CreateBuildRequest, want string) {
		t.Helper()
		req.Transition = sdk.TransitionStop
		if _, err := ann.CreateBuild(t.Context(), ws.ID, req); err != nil {
			t.Fatal(err)
		}
		job := w.Daemon().Next()
		if got := offered(job); got != want {
			t.Errorf("the stop %v may replace %q, want %q", req, got, want)
		}
		job.Finish(replaces("state 1", nil, "disk.home"))
		b := w.Get(ws.ID).LatestBuild
		if number++; b.BuildNumber != number || b.Job.ErrorCode != sdk.JobErrorReplaces || b.Status != sdk.WorkspaceFailed || b.TemplateVersionID != template.ActiveVersionID ||
			!cmp.Equal(b.WouldReplace, []string{"disk.home"}) {
			t.Errorf("refused: build %d, %s, code %q, version %s, would replace %q", b.BuildNumber, b.Status, b.Job.ErrorCode, b.TemplateVersionName, b.WouldReplace)
		}
		values, err := ann.BuildParameters(t.Context(), b.ID)
		if err != nil || len(values) == 0 || values[0].Value == "8" {
			t.Errorf("parameters after a refused stop: %v, %v", values, err)
		}
	}
	refused(sdk.CreateBuildRequest{}, "same")
	refused(sdk.CreateBuildRequest{TemplateVersionID: second.ID}, "")
	refused(sdk.CreateBuildRequest{RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "8"}}, AllowReplacing: []string{"disk.cache"}}, "disk.cache")

	if _, err := ann.Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, AllowReplacing: []string{"disk.home"}}); err != nil {
		t.Fatal(err)
	}
	job := w.Daemon().Next()
	if got := offered(job); got != "disk.home same" {
		t.Errorf("the stop of a restart may replace %q", got)
	}
	job.Finish(coderdtest.Built("stopped"))
	w.Daemon().Next().Finish(coderdtest.Built("running"))

	schedule(t, w, *w.Get(ws.ID).LatestBuild.Deadline)
	job = w.Daemon().Next()
	if got := offered(job); got != "same" {
		t.Errorf("an automatic stop may replace %q", got)
	}
	job.Finish(replaces("running", nil, "disk.home"))
	if err := w.Notifications.Deliver(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := ann.Inbox(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := json.Marshal(list); !strings.Contains(string(text), "Stop the workspace yourself to decide") {
		t.Errorf("the owner was not told what the stop would replace: %s", text)
	}

	edit(t, w, template.ID, sdk.TemplatePolicy{AllowReplacingResources: ptr(true)})
	w.Build("ann", ws.ID, sdk.TransitionStop)
	if got := offered(w.Daemon().Next()); got != "all" {
		t.Errorf("with permission of the template, the stop may replace %q", got)
	}
}
