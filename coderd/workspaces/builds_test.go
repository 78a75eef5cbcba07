package workspaces_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/testwait"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestOneBuildAtATime(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws := w.Workspace("ann", "dev", w.Template("process", process()).ID)
	refused := func(doing string) {
		t.Helper()
		_, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop})
		if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Detail, "Build 1") {
			t.Errorf("build while another is %s: %v, want a conflict that names it", doing, err)
		}
	}
	refused("pending")
	job := w.Daemon().Next()
	refused("running")
	job.Finish(coderdtest.Built("s"))
	// Of many requests at once, one makes a build.
	results := make(chan error, 8)
	for range cap(results) {
		go func() {
			_, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStop})
			results <- err
		}()
	}
	made := 0
	for range cap(results) {
		switch err := <-results; fault.CodeOf(err) {
		case "":
			made++
		case fault.Conflict:
		default:
			t.Error(err)
		}
	}
	if made != 1 {
		t.Errorf("%d builds were made at once, want 1", made)
	}
}

func TestBuildRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	foreign := w.Template("other", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	for name, req := range map[string]sdk.CreateBuildRequest{
		"transition":      {Transition: "pause"},
		"orphan":          {Transition: sdk.TransitionStop, Orphan: true},
		"log level":       {Transition: sdk.TransitionStop, LogLevel: "trace"},
		"reason":          {Transition: sdk.TransitionStop, Reason: sdk.ReasonAutostop},
		"version":         {Transition: sdk.TransitionStart, TemplateVersionID: foreign.ActiveVersionID},
		"immutable":       {Transition: sdk.TransitionStart, RichParameterValues: []sdk.ParameterValue{{Name: "region", Value: "us"}}},
		"unknown":         {Transition: sdk.TransitionStart, RichParameterValues: []sdk.ParameterValue{{Name: "color", Value: "red"}}},
		"dry run":         {Transition: sdk.TransitionStart, DryRun: true},
		"what the preset": {Transition: sdk.TransitionStart, TemplateVersionPresetID: uuid.New()},
	} {
		_, err := w.As("ann").CreateBuild(t.Context(), ws.ID, req)
		if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) == 0 {
			t.Errorf("%s: %v, want invalid with the field named", name, err)
		}
	}
}

// carrying is a server with a workspace whose builds begin with the state of the one before.
type carrying struct {
	*coderdtest.Server
	id uuid.UUID
}

func (c *carrying) next(t *testing.T, transition sdk.Transition) *coderdtest.Job {
	t.Helper()
	c.Build("ann", c.id, transition)
	return c.Daemon().Next()
}

func starts(t *testing.T, job *coderdtest.Job, want string) {
	t.Helper()
	if got := string(job.GetWorkspaceBuild().GetState()); got != want {
		t.Errorf("build starts from %q, want %q", got, want)
	}
}

// failed is the result of a build that fails and leaves a state.
func failed(state string) *provisionerpb.Result {
	r := coderdtest.Built(state)
	r.Error = "boom"
	return r
}

// TestStateIsCarriedOver checks that the state is carried over, even by builds that fail.
func TestStateIsCarriedOver(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	c := &carrying{w, ws.ID}
	job := c.next(t, sdk.TransitionStop)
	starts(t, job, "state 1")
	job.Checkpoint("state 2a")
	job.Finish(failed("state 2b"))
	if got := w.Get(ws.ID).LatestBuild; got.Status != sdk.WorkspaceFailed || got.Job.Error != "boom" {
		t.Errorf("failed build: %+v", got)
	}
	job = c.next(t, sdk.TransitionStop)
	starts(t, job, "state 2b")
	job.Checkpoint("state 3")
	job.Finish(&provisionerpb.Result{Error: "the provisioner was lost"}) // without a part of its kind
	job = c.next(t, sdk.TransitionStop)
	starts(t, job, "state 3")
	job.Finish(failed(""))
	job = c.next(t, sdk.TransitionStart)
	starts(t, job, "state 3")
	job.Finish(failed(""))
	// A build that is canceled before it runs keeps the state too.
	b := w.Build("ann", ws.ID, sdk.TransitionStop)
	if err := w.As("ann").CancelBuild(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild.Status; got != sdk.WorkspaceCanceled {
		t.Errorf("canceled build: %s", got)
	}
	if err := w.As("ann").CancelBuild(t.Context(), b.ID); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("canceled again: %v, want conflict", err)
	}
	job = c.next(t, sdk.TransitionStop)
	starts(t, job, "state 3")
	job.Finish(failed(""))

	c.pushes(t, b.ID)
}

// pushes writes the state as an operator: it is the next build's.
func (c *carrying) pushes(t *testing.T, old uuid.UUID) {
	t.Helper()
	olga := c.As("olga")
	latest := c.Get(c.id).LatestBuild
	const pushed = `{"version": 4, "lineage": "l", "serial": 1}`
	var state bytes.Buffer
	if err := olga.BuildState(t.Context(), latest.ID, &state); err != nil || state.String() != "state 3" {
		t.Errorf("state: %q, %v", state.String(), err)
	}
	if err := olga.UpdateBuildState(t.Context(), latest.ID, sdk.UpdateStateRequest{State: []byte(`not json`)}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("state that is none: %v, want invalid", err)
	}
	if err := olga.UpdateBuildState(t.Context(), old, sdk.UpdateStateRequest{State: []byte(pushed)}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("state of an old build: %v, want conflict", err)
	}
	if err := olga.UpdateBuildState(t.Context(), latest.ID, sdk.UpdateStateRequest{State: []byte(pushed)}); err != nil {
		t.Fatal(err)
	}
	job := c.next(t, sdk.TransitionStop)
	starts(t, job, pushed)
	if err := olga.UpdateBuildState(t.Context(), c.Get(c.id).LatestBuild.ID, sdk.UpdateStateRequest{State: []byte(pushed)}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("state of an active build: %v, want conflict", err)
	}
	job.Finish(failed(""))
	if _, err := olga.CreateBuild(t.Context(), c.id, sdk.CreateBuildRequest{Transition: sdk.TransitionDelete, Orphan: true}); err != nil {
		t.Fatal(err)
	}
	job = c.Daemon().Next()
	starts(t, job, "")
	job.Finish(coderdtest.Built(""))
}

// TestOrphanNamesWhatStays checks that the log of a build that deletes a workspace without its state names the resources that stay behind,
// also if an earlier such build failed, and if the build waited for a provisioner, which its log says first.
func TestOrphanNamesWhatStays(t *testing.T) {
	t.Parallel()
	const lists = `{"version":4,"serial":3,"lineage":"l","resources":[{"mode":"data","type":"coder_workspace","name":"me","instances":[{}]},
		{"mode":"managed","type":"coder_agent","name":"main","instances":[{}]},{"module":"module.m","mode":"managed","type":"coder_app","name":"x","instances":[{}]},
		{"module":"module.m[\"a.b\"]","mode":"managed","type":"docker_volume","name":"home","instances":[{"index_key":0}]}]}`
	for name, c := range map[string]struct{ state, want string }{
		"resources":        {lists, "These resources stay behind, and nothing manages them any more: module.m[\"a.b\"].docker_volume.home[0]. Remove them where they were made."},
		"no resources":     {`{"version":4,"serial":3,"lineage":"l"}`, ""},
		"unreadable state": {`torn`, "The workspace's resources stay behind, and its state, which lists them, cannot be read. Look for them where they were made."},
		"never built":      {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := coderdtest.New(t)
			ws := w.Workspace("ann", "dev", w.Template("process", process()).ID)
			failed := coderdtest.Built(c.state)
			failed.Error = "boom"
			w.Daemon().Next().Finish(failed)
			olga := w.As("olga")
			for _, waits := range []bool{false, true} {
				b, err := olga.CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionDelete, Orphan: true})
				if err != nil {
					t.Fatal(err)
				}
				if waits {
					testwait.Until(t, "the log says why the build waits", func() error {
						logs, err := olga.BuildLogs(t.Context(), b.ID, 0)
						if err == nil && len(logs) == 0 {
							err = errors.New("it is empty")
						}
						return err
					})
				}
				w.Daemon().Next().Finish(&provisionerpb.Result{Error: "boom", Of: &provisionerpb.Result_WorkspaceBuild{}})
				logs, err := olga.BuildLogs(t.Context(), b.ID, 0)
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, line := range logs {
					if strings.Contains(line.Output, "stay behind") {
						got += line.Output
					}
				}
				if got != c.want {
					t.Errorf("the log says %q, want %q", got, c.want)
				}
			}
		})
	}
}

func TestFailedStartLetsNobodyIn(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Workspace("ann", "dev", w.Template("process", process()).ID)
	agent := uuid.New()
	job := w.Daemon().Next()
	job.Resources(coderdtest.Resource(agent))
	job.Finish(&provisionerpb.Result{Error: "boom", Of: &provisionerpb.Result_WorkspaceBuild{WorkspaceBuild: &provisionerpb.BuildResult{
		State: []byte("s"), Resources: []*provisionerpb.Resource{coderdtest.Resource(agent)},
	}}})
	if _, err := w.Agents.AuthenticateAgent(t.Context(), coderdtest.Token(agent)); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("agent: %v, want unauthenticated", err)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", process())
	ws, _ := w.Running("ann", "dev", template.ID)
	next := w.Version(&template.ID, process())
	if err := w.As("tom").UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: next.ID}); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID); !got.Outdated || got.TemplateActiveVersionID != next.ID {
		t.Errorf("workspace: %+v, want it outdated", got)
	}
	start := func(req sdk.CreateBuildRequest) uuid.UUID {
		t.Helper()
		req.Transition = sdk.TransitionStart
		b, err := w.As("ann").CreateBuild(t.Context(), ws.ID, req)
		if err != nil {
			t.Fatal(err)
		}
		w.Daemon().Next().Finish(coderdtest.Built("s"))
		return b.TemplateVersionID
	}
	if got := start(sdk.CreateBuildRequest{}); got != template.ActiveVersionID {
		t.Errorf("a plain start took version %s, want the one before", got)
	}
	if got := start(sdk.CreateBuildRequest{TemplateVersionID: next.ID}); got != next.ID {
		t.Errorf("an update took version %s, want %s", got, next.ID)
	}
	start(sdk.CreateBuildRequest{TemplateVersionID: template.ActiveVersionID})
	if err := w.As("ann").UpdateAutomaticUpdates(t.Context(), ws.ID, sdk.UpdateAutomaticUpdatesRequest{AutomaticUpdates: sdk.UpdatesAlways}); err != nil {
		t.Fatal(err)
	}
	if got := start(sdk.CreateBuildRequest{}); got != next.ID {
		t.Errorf("a start with automatic updates took version %s, want %s", got, next.ID)
	}
	if _, err := w.As("tom").UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{RequireActiveVersion: ptr(true)}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: template.ActiveVersionID}); fault.CodeOf(err) != fault.Forbidden {
		t.Errorf("an old version where the active one is required: %v, want forbidden", err)
	}
	if got := w.Get(ws.ID); got.Outdated {
		t.Error("workspace is still outdated")
	}
}

func TestOwnersSecretsOnlyWhereNamed(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	found := process()
	found.NamesOwnerSessionToken, found.NamesOwnerSshPrivateKey = true, true
	ws := w.Workspace("ann", "dev", w.Template("process", found).ID)
	job := w.Daemon().Next()
	m := job.GetWorkspaceBuild().GetMetadata()
	if !strings.Contains(m.GetOwnerSshPrivateKey(), "PRIVATE KEY") || len(m.GetOwnerSessionToken()) != 10+1+22 {
		t.Error("the secrets that the template names are not offered")
	}
	keys := func() (n int) {
		if err := w.DB.Pool.QueryRow(t.Context(), `SELECT count(*) FROM api_keys WHERE workspace_id = $1`, ws.ID).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got := keys(); got != 1 {
		t.Errorf("%d session tokens of the workspace, want 1", got)
	}
	job.Finish(coderdtest.Built("s"))
	w.Build("ann", ws.ID, sdk.TransitionDelete)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	if got := keys(); got != 0 {
		t.Errorf("%d session tokens of a deleted workspace, want none", got)
	}
}

func TestBuildRoutes(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	ann := w.As("ann")
	b, err := ann.BuildByNumber(t.Context(), "ann", "dev", 1)
	if err != nil || b.ID != ws.LatestBuild.ID {
		t.Errorf("by number: %+v, %v", b, err)
	}
	if _, err := ann.BuildByNumber(t.Context(), "ann", "dev", 2); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no such number: %v, want not found", err)
	}
	parameters, err := ann.BuildParameters(t.Context(), b.ID)
	want := []sdk.BuildParameter{{Name: "cpus", Value: "2"}, {Name: "once", Value: "no"}, {Name: "region", Value: "eu"}}
	if diff := cmp.Diff(want, parameters); err != nil || diff != "" {
		t.Errorf("parameters (-want +got): %v\n%s", err, diff)
	}
	resources, err := ann.BuildResources(t.Context(), b.ID)
	if err != nil || len(resources) != 1 {
		t.Errorf("resources: %+v, %v", resources, err)
	}
	// The provisioner reported nothing. A build that was not taken at once has one line from the server that explains why.
	logs, err := ann.BuildLogs(t.Context(), b.ID, 0)
	if err != nil || len(logs) > 1 {
		t.Errorf("logs: %v, %v", logs, err)
	}
	for _, line := range logs {
		if line.Stage != "Queued" || line.Level != "info" || line.Output == "" {
			t.Errorf("log: %+v, want nothing or why the build waited", line)
		}
	}
	if _, err := ann.Build(t.Context(), uuid.New()); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("no such build: %v, want not found", err)
	}
	presets, err := ann.TemplateVersionPresets(t.Context(), b.TemplateVersionID)
	if err != nil {
		t.Fatal(err)
	}
	made, err := ann.CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionPresetID: presets[0].ID, Reason: sdk.ReasonVSCode, LogLevel: "debug"})
	if err != nil || made.Reason != sdk.ReasonVSCode {
		t.Fatalf("build: %+v, %v", made, err)
	}
	offer := w.Daemon().Next().GetWorkspaceBuild()
	if got := values(offer.GetParameters()); !slices.Contains(got, "cpus=8") || offer.GetLogLevel() != "debug" {
		t.Errorf("offer: %v with log level %q, want the preset's", got, offer.GetLogLevel())
	}
	if err := ann.CancelBuild(t.Context(), made.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.Get(ws.ID).LatestBuild.Status; got != sdk.WorkspaceCanceling {
		t.Errorf("status: %s, want canceling", got)
	}
	if got := fmt.Sprint(len(must(ann.Builds(t.Context(), ws.ID)))); got != "2" {
		t.Errorf("%s builds, want 2", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestInterruptedBuildIsNotForgotten checks that the changes that an interrupted build began stay known until a build
// succeeds: to the build, to the next provisioner, and across failed builds.
func TestInterruptedBuildIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	ws, _ := w.Running("ann", "dev", w.Template("process", process()).ID)
	next := func(transition sdk.Transition) *coderdtest.Job {
		t.Helper()
		w.Build("ann", ws.ID, transition)
		return w.Daemon().Next()
	}
	is := func(unknown, tainted []string) {
		t.Helper()
		b := w.Get(ws.ID).LatestBuild
		if diff := cmp.Diff([][]string{unknown, tainted}, [][]string{b.UnknownResources, b.TaintedResources}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("build %d, unknown and tainted (-want +got):\n%s", b.BuildNumber, diff)
		}
	}
	begins := func(address string) *provisionerpb.Change {
		return &provisionerpb.Change{Address: address, Creates: true}
	}
	// Its provisioner is lost: the server knows which changes it began, and marks those that are in the state.
	job := next(sdk.TransitionStart)
	job.Changes(begins("t.half"), begins("t.gone"), begins("t.fine"), &provisionerpb.Change{Address: "t.fine", Creates: true, End: provisionerpb.Change_END_COMPLETE})
	job.Checkpoint(`{"version":4,"serial":3,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"half","instances":[{}]},{"mode":"managed","type":"t","name":"fine","instances":[{}]}]}`)
	job.Finish(&provisionerpb.Result{Error: "The provisioner was lost."})
	is([]string{"t.gone"}, []string{"t.half"})
	if got := w.Get(ws.ID).LatestBuild.Job.Error; !strings.Contains(got, "t.gone") || !strings.Contains(got, "t.half") || strings.Contains(got, "t.fine") {
		t.Errorf("the error is %q", got)
	}
	// The next build begins from the marked state and knows the changes; it fails for another reason and adds to the list.
	job = next(sdk.TransitionStart)
	work := job.GetWorkspaceBuild()
	if diff := cmp.Diff([][]string{{"t.gone"}, {"t.half"}}, [][]string{work.GetUnknown(), work.GetTainted()}); diff != "" {
		t.Errorf("the next build is told (-want +got):\n%s", diff)
	}
	if state := string(work.GetState()); !strings.Contains(state, `"status":"tainted"`) || !strings.Contains(state, `"serial":4`) {
		t.Errorf("the next build begins from %s", state)
	}
	failed := coderdtest.Built(string(work.GetState()))
	failed.Error, failed.GetWorkspaceBuild().Unknown = "boom", []string{"t.more"}
	job.Finish(failed)
	is([]string{"t.gone", "t.more"}, []string{"t.half"})
	// A build that fails after it has made the resource anew settles it.
	failed = coderdtest.Built(`{"version":4,"serial":5,"lineage":"l","resources":[{"mode":"managed","type":"t","name":"half","instances":[{}]}]}`)
	failed.Error = "boom"
	next(sdk.TransitionStart).Finish(failed)
	is([]string{"t.gone", "t.more"}, nil)
	// A build that is canceled before it runs changes nothing.
	b := w.Build("ann", ws.ID, sdk.TransitionStop)
	if err := w.As("ann").CancelBuild(t.Context(), b.ID); err != nil {
		t.Fatal(err)
	}
	is([]string{"t.gone", "t.more"}, nil)
	next(sdk.TransitionStart).Finish(coderdtest.Built(`{"version":4}`))
	is(nil, nil)
	job = next(sdk.TransitionStop)
	if work := job.GetWorkspaceBuild(); len(work.GetUnknown())+len(work.GetTainted()) > 0 {
		t.Errorf("after a success the next build is told %v", work)
	}
	job.Finish(coderdtest.Built(`{"version":4}`))
}
