package workspaces_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/workspaces"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ptr[T any](v T) *T { return &v }

// process returns what an import finds in a small template.
func process() *provisionerpb.ImportResult {
	return &provisionerpb.ImportResult{
		Parameters: []*provisionerpb.Parameter{
			{Name: "cpus", Type: "number", DefaultValue: "2", Mutable: true, Validation: &provisionerpb.ParameterValidation{Max: ptr[int64](8)}},
			{Name: "region", Type: "string", DefaultValue: "eu"},
			{Name: "once", Type: "string", DefaultValue: "no", Mutable: true, Ephemeral: true},
		},
		Presets: []*provisionerpb.Preset{{Name: "big", Parameters: []*provisionerpb.ParameterValue{{Name: "cpus", Value: "8"}}}},
	}
}

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"dev": true, "my-box-2": true, "A1": true, strings.Repeat("a", 32): true,
		"": false, strings.Repeat("a", 33): false, "-a": false, "a-": false, "a--b": false, "a_b": false, "a.b": false, "a b": false, "a\n": false, "é": false,
	} {
		if got := workspaces.CheckName(name) == nil; got != ok {
			t.Errorf("CheckName(%q) accepts: %t, want %t", name, got, ok)
		}
	}
}

// TestLife runs through the whole life of a workspace.
func TestLife(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ann := w.As("ann")
	template := w.Template("process", process())
	made, err := ann.CreateWorkspace(t.Context(), "me", sdk.CreateWorkspaceRequest{
		TemplateID: template.ID, Name: "dev", TTLMillis: ptr[int64](3600_000), RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "4"}, {Name: "once", Value: "yes"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b := made.LatestBuild
	if made.OwnerName != "ann" || made.TemplateName != "process" || made.Outdated || b.BuildNumber != 1 || b.Status != sdk.WorkspacePending && b.Status != sdk.WorkspaceStarting ||
		b.Transition != sdk.TransitionStart || b.WorkspaceName != "dev" || b.WorkspaceOwnerName != "ann" || *made.TTLMillis != 3600_000 || b.Deadline != nil || !made.Health.Healthy {
		t.Errorf("new workspace: %+v", made)
	}

	agent := firstStart(t, w, made.ID)

	firstStop(t, w, made.ID, agent)

	w.Build("ann", made.ID, sdk.TransitionStart)
	w.Daemon().Next().Finish(coderdtest.Built("state 3", coderdtest.Resource(agent)))
	if _, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); err != nil {
		t.Errorf("agent of the second start: %v", err)
	}

	deleteForGood(t, w, made.ID)
	// Its name is free again.
	w.Workspace("ann", "dev", template.ID)
}

// firstStart runs the first build of the workspace dev. It returns its agent, which is admitted before the build has ended.
func firstStart(t *testing.T, w *coderdtest.Server, id uuid.UUID) (agent uuid.UUID) {
	t.Helper()
	job := w.Daemon().Next()
	offer := job.GetWorkspaceBuild()
	m := offer.GetMetadata()
	if offer.GetTransition() != provisionerpb.Transition_TRANSITION_START || len(offer.GetState()) != 0 || m.GetWorkspaceName() != "dev" || m.GetOwnerName() != "ann" ||
		m.GetTemplateName() != "process" || !strings.HasPrefix(m.GetOwnerSshPublicKey(), "ssh-ed25519 ") || m.GetOwnerSshPrivateKey() != "" || m.GetOwnerSessionToken() != "" {
		t.Errorf("offer: %v", offer)
	}
	if got := w.Get(id).LatestBuild.Status; got != sdk.WorkspaceStarting {
		t.Errorf("status while the job runs: %s", got)
	}
	// The agent is admitted before the job ends.
	agent = uuid.New()
	job.Checkpoint("state 1a")
	job.Resources(coderdtest.Resource(agent))
	if _, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); err != nil {
		t.Errorf("early agent: %v", err)
	}
	if got := w.Get(id).LatestBuild.Resources; len(got) != 1 || len(got[0].Agents) != 1 {
		t.Errorf("early resources: %+v", got)
	}
	job.Finish(coderdtest.Built("state 1", coderdtest.Resource(agent)))
	b := w.Get(id).LatestBuild
	if b.Status != sdk.WorkspaceRunning || b.Job.CompletedAt == nil || b.Deadline == nil || b.DailyCost != 2 || len(b.Resources) != 1 || b.Resources[0].Agents[0].ID != agent {
		t.Errorf("running build: %+v", b)
	}
	return agent
}

// firstStop stops the workspace: it keeps its state and parameters, except those that are ephemeral, and loses its agent.
func firstStop(t *testing.T, w *coderdtest.Server, id, agent uuid.UUID) {
	t.Helper()
	w.Build("ann", id, sdk.TransitionStop)
	job := w.Daemon().Next()
	stop := job.GetWorkspaceBuild()
	if string(stop.GetState()) != "state 1" || stop.GetTransition() != provisionerpb.Transition_TRANSITION_STOP {
		t.Errorf("stop offer: %v", stop)
	}
	want := []string{"cpus=4", "once=no", "region=eu"}
	if got := values(stop.GetParameters()); !slices.Equal(got, want) {
		t.Errorf("parameters of the second build: %v, want %v: what is ephemeral is not carried over", got, want)
	}
	if got := values(stop.GetPreviousParameters()); !slices.Contains(got, "once=yes") {
		t.Errorf("previous parameters: %v", got)
	}
	job.Finish(coderdtest.Built("state 2"))
	stopped := w.Get(id)
	if stopped.LatestBuild.Status != sdk.WorkspaceStopped {
		t.Errorf("stopped: %+v", stopped.LatestBuild)
	}
	if _, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("agent of a stopped workspace: %v, want unauthenticated", err)
	}
}

// deleteForGood deletes the workspace dev, and asks for it afterwards.
func deleteForGood(t *testing.T, w *coderdtest.Server, id uuid.UUID) {
	t.Helper()
	ann := w.As("ann")
	w.Build("ann", id, sdk.TransitionDelete)
	w.Daemon().Next().Finish(coderdtest.Built("state 4"))
	if _, err := ann.Workspace(t.Context(), id); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted workspace: %v, want not found", err)
	}
	if _, err := ann.WorkspaceByName(t.Context(), "me", "dev"); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted workspace by name: %v, want not found", err)
	}
	var deleted sdk.Workspace
	if code := call(t, w, "ann", "GET", "users/me/workspace/dev?include_deleted=true", nil, &deleted); code != 200 || deleted.LatestBuild.Status != sdk.WorkspaceDeleted {
		t.Errorf("deleted workspace on request: %d, %+v", code, deleted.LatestBuild)
	}
	if _, err := ann.CreateBuild(t.Context(), id, sdk.CreateBuildRequest{Transition: sdk.TransitionStart}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("build of a deleted workspace: %v, want conflict", err)
	}
	builds, err := ann.Builds(t.Context(), id)
	if err != nil || len(builds) != 4 || builds[0].BuildNumber != 4 {
		t.Errorf("builds: %d, %v, want four, the newest first", len(builds), err)
	}
}

func values(parameters []*provisionerpb.ParameterValue) []string {
	var out []string
	for _, p := range parameters {
		out = append(out, p.GetName()+"="+p.GetValue())
	}
	return out
}

// call sends a request that the client has no method for.
func call(t *testing.T, w *coderdtest.Server, who, method, path string, body, into any) int {
	t.Helper()
	var buf bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&buf).Encode(body); err != nil {
			t.Fatal(err)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, w.URL.String()+"/api/v2/"+path, &buf)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(sdk.SessionHeader, w.Token(who))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if into != nil && resp.StatusCode < 300 {
		if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}

// TestOthers checks that another member finds nothing, and that a template admin can read but not change.
func TestOthers(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, agent := w.Running("ann", "dev", template.ID)
	id, build := ws.ID.String(), ws.LatestBuild.ID.String()
	for _, route := range []struct {
		method, path string
		body         any
		admin        int // for a template admin
	}{
		{"GET", "workspaces/" + id, nil, 200},
		{"GET", "users/ann/workspace/dev", nil, 200},
		{"GET", "users/ann/workspace/dev/builds/1", nil, 200},
		{"PATCH", "workspaces/" + id, sdk.UpdateWorkspaceRequest{Name: "mine"}, 403},
		{"PUT", "workspaces/" + id + "/autostart", sdk.UpdateAutostartRequest{}, 403},
		{"PUT", "workspaces/" + id + "/ttl", sdk.UpdateTTLRequest{}, 403},
		{"PUT", "workspaces/" + id + "/extend", sdk.ExtendRequest{Deadline: time.Now().Add(time.Hour)}, 403},
		{"PUT", "workspaces/" + id + "/autoupdates", sdk.UpdateAutomaticUpdatesRequest{AutomaticUpdates: "always"}, 403},
		{"PUT", "workspaces/" + id + "/favorite", nil, 204},
		{"DELETE", "workspaces/" + id + "/favorite", nil, 204},
		{"POST", "workspaces/" + id + "/usage", sdk.UsageRequest{}, 403},
		{"GET", "workspaces/" + id + "/builds", nil, 200},
		{"POST", "workspaces/" + id + "/builds", sdk.CreateBuildRequest{Transition: "stop"}, 403},
		{"POST", "workspaces/" + id + "/builds", sdk.CreateBuildRequest{Transition: "delete", Orphan: true}, 403},
		{"GET", "workspacebuilds/" + build, nil, 200},
		{"GET", "workspacebuilds/" + build + "/parameters", nil, 200},
		{"GET", "workspacebuilds/" + build + "/resources", nil, 200},
		{"GET", "workspacebuilds/" + build + "/logs", nil, 200},
		{"GET", "workspacebuilds/" + build + "/state", nil, 403},
		{"PUT", "workspacebuilds/" + build + "/state", sdk.UpdateStateRequest{State: []byte("{}")}, 403},
		{"PATCH", "workspacebuilds/" + build + "/cancel", nil, 403},
		{"GET", "workspaceagents/" + agent.String(), nil, 200},
		{"GET", "workspaceagents/" + agent.String() + "/logs", nil, 200},
		{"GET", "workspaceagents/" + agent.String() + "/connection", nil, 403},
		{"POST", "users/ann/workspaces", sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "theirs"}, 403},
		{"POST", "organizations/default/members/ann/workspaces", sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "theirs"}, 403},
	} {
		if got := call(t, w, "bob", route.method, route.path, route.body, nil); got != 404 {
			t.Errorf("another member: %s %s: got %d, want 404", route.method, route.path, got)
		}
		if got := call(t, w, "tom", route.method, route.path, route.body, nil); got != route.admin {
			t.Errorf("template admin: %s %s: got %d, want %d", route.method, route.path, got, route.admin)
		}
		if got := call(t, w, "", route.method, route.path, route.body, nil); got != 401 {
			t.Errorf("nobody: %s %s: got %d, want 401", route.method, route.path, got)
		}
	}
	for _, path := range []string{"workspaces/" + id + "/watch", "workspaces/" + id + "/watch-ws"} {
		if got := call(t, w, "bob", "GET", path, nil, nil); got != 404 {
			t.Errorf("another member: GET %s: got %d, want 404", path, got)
		}
	}
	// Even the state of the user's own workspace contains the template's secrets.
	if got := call(t, w, "ann", "GET", "workspacebuilds/"+build+"/state", nil, nil); got != 403 {
		t.Errorf("owner reads the state: got %d, want 403", got)
	}
	if got := call(t, w, "ann", "POST", "workspaces/"+id+"/builds", sdk.CreateBuildRequest{Transition: "delete", Orphan: true}, nil); got != 403 {
		t.Errorf("owner orphans: got %d, want 403", got)
	}
	list, err := w.As("bob").Workspaces(t.Context(), sdk.WorkspacesQuery{Q: "owner:ann"})
	if err != nil || list.Count != 0 || len(list.Workspaces) != 0 {
		t.Errorf("another member's list: %+v, %v", list, err)
	}
	if got := w.Get(ws.ID); got.Name != "dev" || got.LatestBuild.BuildNumber != 1 {
		t.Errorf("the workspace changed: %+v", got)
	}
}

func TestCreateIsRefused(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	w.Workspace("ann", "dev", template.ID)
	for name, tt := range map[string]struct {
		req  sdk.CreateWorkspaceRequest
		want fault.Code
	}{
		"name":          {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "no spaces"}, fault.Invalid},
		"name taken":    {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "DEV"}, fault.Conflict},
		"no template":   {sdk.CreateWorkspaceRequest{Name: "x"}, fault.Invalid},
		"what template": {sdk.CreateWorkspaceRequest{TemplateID: uuid.New(), Name: "x"}, fault.Invalid},
		"what version":  {sdk.CreateWorkspaceRequest{TemplateVersionID: uuid.New(), Name: "x"}, fault.Invalid},
		"what preset":   {sdk.CreateWorkspaceRequest{TemplateID: template.ID, TemplateVersionPresetID: uuid.New(), Name: "x"}, fault.Invalid},
		"parameter":     {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "x", RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "9"}}}, fault.Invalid},
		"schedule":      {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "x", AutostartSchedule: ptr("often")}, fault.Invalid},
		"ttl":           {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "x", TTLMillis: ptr[int64](1)}, fault.Invalid},
		"updates":       {sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "x", AutomaticUpdates: "often"}, fault.Invalid},
	} {
		_, err := w.As("ann").CreateWorkspace(t.Context(), "me", tt.req)
		if f := fault.As(err); f == nil || f.Code != tt.want || len(f.Fields) == 0 {
			t.Errorf("%s: %v, want %s with the field named", name, err, tt.want)
		}
	}
	if _, err := w.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DeprecationMessage: ptr("use another")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.As("ann").CreateWorkspace(t.Context(), "me", sdk.CreateWorkspaceRequest{TemplateID: template.ID, Name: "x"}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("deprecated template: %v, want conflict", err)
	}
}
