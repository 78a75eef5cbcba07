package workspaces_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// computedSource has a literal country, an immutable zone and a size that follow from it, and a parameter for one build.
const computedSource = `
data "coder_parameter" "country" {
  name    = "country"
  default = "de"
}
data "coder_parameter" "zone" {
  name    = "zone"
  default = local.zones[data.coder_parameter.country.value][0]
}
data "coder_parameter" "size" {
  name    = "size"
  type    = "number"
  mutable = true
  default = data.coder_parameter.country.value == "de" ? 20 : 10
  validation {
    monotonic = "increasing"
  }
}
data "coder_parameter" "once" {
  name      = "once"
  mutable   = true
  ephemeral = true
  default   = data.coder_parameter.country.value
}
data "coder_parameter" "extra" {
  count   = data.coder_parameter.country.value == "us" ? 1 : 0
  name    = "extra"
  default = "none"
}
`

// computing is a server whose provisioner computes the defaults of computedSource.
type computing struct {
	*coderdtest.Server
	t        *testing.T
	defaults map[string]string
}

func newComputing(t *testing.T) *computing {
	t.Helper()
	w := &computing{Server: coderdtest.New(t), t: t, defaults: map[string]string{"zone": "fra1", "size": "20", "once": "de"}}
	var out bytes.Buffer
	files := tar.NewWriter(&out)
	if err := files.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(computedSource)), Typeflag: tar.TypeReg}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(files, computedSource); err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	w.Archive = out.Bytes()
	return w
}

// found is what an import finds in computedSource.
func (w *computing) found(prebuilds *provisionerpb.Prebuilds) *provisionerpb.ImportResult {
	return &provisionerpb.ImportResult{
		Parameters: []*provisionerpb.Parameter{
			{Name: "country", Type: "string", DefaultValue: "de"},
			{Name: "zone", Type: "string", DefaultValue: w.defaults["zone"]},
			{Name: "size", Type: "number", DefaultValue: w.defaults["size"], Mutable: true, Validation: &provisionerpb.ParameterValidation{Monotonic: "increasing"}},
			{Name: "once", Type: "string", DefaultValue: "de", Mutable: true, Ephemeral: true},
		},
		Presets: []*provisionerpb.Preset{{Name: "any", Prebuilds: prebuilds}},
	}
}

// run finishes the next job as Terraform would, and returns the values that it built with.
func (w *computing) run(agent uuid.UUID, edit ...func(*provisionerpb.Result)) map[string]string {
	w.t.Helper()
	job := w.Daemon().Next()
	all := maps.Clone(w.defaults)
	for _, p := range job.GetWorkspaceBuild().GetParameters() {
		all[p.GetName()] = p.GetValue()
	}
	result := coderdtest.Built(stateWith(w.t, all, w.defaults), coderdtest.Resource(agent))
	for _, edit := range edit {
		edit(result)
	}
	job.Finish(result)
	return all
}

// stateWith returns a state in which parameters have values.
func stateWith(t *testing.T, values, defaults map[string]string) string {
	t.Helper()
	resources := []any{}
	for name, value := range values {
		resources = append(resources, map[string]any{"mode": "data", "type": "coder_parameter", "name": name, "instances": []any{map[string]any{
			"attributes": map[string]any{"name": name, "value": value, "default": defaults[name], "mutable": name == "size" || name == "once", "ephemeral": name == "once", "styling": "{}"},
		}}})
	}
	text, err := json.Marshal(map[string]any{"version": 4, "serial": 1, "lineage": "l", "resources": resources})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// stored returns the values of a workspace's latest build, as its owner reads them. Computed ones have a star.
func (w *computing) stored(owner string, workspace uuid.UUID) []string {
	w.t.Helper()
	all, err := w.As(owner).BuildParameters(w.t.Context(), w.Get(workspace).LatestBuild.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, p := range all {
		text := p.Name + "=" + p.Value
		if p.Computed {
			text += "*"
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}

// refuses checks that a start with a value is refused, and why.
func (w *computing) refuses(workspace uuid.UUID, version uuid.UUID, name, value, want string) {
	w.t.Helper()
	_, err := w.As("ann").CreateBuild(w.t.Context(), workspace, sdk.CreateBuildRequest{
		Transition: sdk.TransitionStart, TemplateVersionID: version, RichParameterValues: []sdk.ParameterValue{{Name: name, Value: value}},
	})
	if f := fault.As(err); f == nil || f.Code != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Field != name || !strings.Contains(f.Fields[0].Detail, want) {
		w.t.Errorf("%s=%s: %v, want a refusal with %q", name, value, err, want)
	}
}

func (w *computing) check(what string, got, want any) {
	w.t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// TestComputedValuesStay checks that values that a template computed hold in later builds like values that someone chose: against other
// answers, other versions of the template, and rules that know the value before.
func TestComputedValuesStay(t *testing.T) {
	t.Parallel()
	w := newComputing(t)
	made := w.Template("zones", w.found(nil))
	ws := w.Workspace("ann", "dev", made.ID)
	w.run(uuid.New())
	w.check("stored after the first build", w.stored("ann", ws.ID), []string{"country=de", "size=20*", "zone=fra1*"})
	w.refuses(ws.ID, uuid.Nil, "zone", "muc1", "cannot be changed after the workspace was created")
	w.refuses(ws.ID, uuid.Nil, "size", "5", "can only grow")

	w.defaults = map[string]string{"zone": "ber1", "size": "50", "once": "later"}
	newer := w.Version(&made.ID, w.found(nil))
	w.refuses(ws.ID, newer.ID, "zone", "ber1", "cannot be changed after the workspace was created")
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: newer.ID}); err != nil {
		t.Fatal(err)
	}
	w.check("the update builds with", w.run(uuid.New()), map[string]string{"country": "de", "size": "20", "zone": "fra1", "once": "later"})

	// A value that someone chooses is no longer the template's. Stops and deletions keep all values.
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.check("the stop builds with", w.run(uuid.New()), map[string]string{"country": "de", "size": "20", "zone": "fra1", "once": "later"})
	w.Build("ann", ws.ID, sdk.TransitionStart, sdk.ParameterValue{Name: "size", Value: "30"})
	w.run(uuid.New())
	w.check("stored after a choice", w.stored("ann", ws.ID), []string{"country=de", "size=30", "zone=fra1*"})
	w.refuses(ws.ID, uuid.Nil, "size", "20", "can only grow")

	// Forms of new workspaces begin with what someone chose only.
	var recent []sdk.ParameterValue
	if code := call(t, w.Server, "ann", "GET", "users/me/autofill-parameters?template_id="+made.ID.String(), nil, &recent); code != 200 {
		t.Fatalf("autofill: %d", code)
	}
	w.check("autofill", recent, []sdk.ParameterValue{{Name: "country", Value: "de"}, {Name: "size", Value: "30"}})

	w.Build("ann", ws.ID, sdk.TransitionDelete)
	w.check("the deletion builds with", w.run(uuid.New()), map[string]string{"country": "de", "size": "30", "zone": "fra1", "once": "later"})
}

// TestComputedValuesOfConditionalParameters checks that the value of a parameter that is there for some answers only is kept, that a build
// without the parameter succeeds, and that the values of parameters that a template no longer has are forgotten.
func TestComputedValuesOfConditionalParameters(t *testing.T) {
	t.Parallel()
	w := newComputing(t)
	w.defaults["extra"], w.defaults["module"] = "first", "m1" // a module's parameter, which the import did not find
	made := w.Template("zones", w.found(nil))
	ws := w.Workspace("ann", "dev", made.ID)
	w.run(uuid.New())
	w.check("stored", w.stored("ann", ws.ID), []string{"country=de", "extra=first*", "module=m1*", "size=20*", "zone=fra1*"})

	delete(w.defaults, "extra")
	w.defaults["module"] = "m2"
	w.Build("ann", ws.ID, sdk.TransitionStart)
	built := w.run(uuid.New())
	if built["extra"] != "first" || built["module"] != "m1" {
		t.Errorf("the second build had %v, want the values of the first", built)
	}

	// Without the module and the conditional parameter.
	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.run(uuid.New(), func(r *provisionerpb.Result) {
		r.GetWorkspaceBuild().State = []byte(stateWith(t, map[string]string{"country": "de", "size": "20", "zone": "fra1"}, w.defaults))
	})
	w.check("stored after the module has gone", w.stored("ann", ws.ID), []string{"country=de", "extra=first*", "size=20*", "zone=fra1*"})
}

// TestValuesFromTheState checks that builds take the computed values from the state of a build that did not store them: one that failed, and one
// that ran on a release that did not.
func TestValuesFromTheState(t *testing.T) {
	t.Parallel()
	w := newComputing(t)
	made := w.Template("zones", w.found(nil))
	ws := w.Workspace("ann", "dev", made.ID)
	w.run(uuid.New(), func(r *provisionerpb.Result) { r.Error = "the disk is there, the machine is not" })
	w.check("read after a failed build", w.stored("ann", ws.ID), []string{"country=de", "size=20*", "zone=fra1*"})
	w.refuses(ws.ID, uuid.Nil, "zone", "muc1", "cannot be changed after the workspace was created")

	w.Build("ann", ws.ID, sdk.TransitionStart)
	w.run(uuid.New())
	w.Exec(`DELETE FROM workspace_build_parameters WHERE computed`) // as an earlier release leaves it
	w.defaults = map[string]string{"zone": "ber1", "size": "5", "once": "de"}
	newer := w.Version(&made.ID, w.found(nil))
	w.refuses(ws.ID, newer.ID, "zone", "ber1", "cannot be changed after the workspace was created")
	w.refuses(ws.ID, newer.ID, "size", "5", "can only grow")
	if _, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, TemplateVersionID: newer.ID}); err != nil {
		t.Fatal(err)
	}
	job := w.Daemon().Next()
	for what, got := range map[string][]*provisionerpb.ParameterValue{"parameters": job.GetWorkspaceBuild().GetParameters(), "previous": job.GetWorkspaceBuild().GetPreviousParameters()} {
		if all := values(got); !slices.Contains(all, "zone=fra1") || !slices.Contains(all, "size=20") {
			t.Errorf("%s of the first build after the upgrade: %v, want zone=fra1 and size=20", what, all)
		}
	}
}

// TestLostImmutableValue checks that a value that cannot be changed is replaced once, by a restart, when the form no longer allows it.
func TestLostImmutableValue(t *testing.T) {
	t.Parallel()
	w := newComputing(t)
	zones := []string{"fra1", "muc1"}
	w.Evaluate = func(templates.Question) (templates.Answer, error) {
		zone := &provisionerpb.Parameter{Name: "zone", Type: "string"}
		for _, z := range zones {
			zone.Options = append(zone.Options, &provisionerpb.ParameterOption{Name: z, Value: z})
		}
		return templates.Answer{Parameters: []*provisionerpb.Parameter{zone}}, nil
	}
	made := w.Template("zones", w.found(nil))
	ws := w.Workspace("ann", "dev", made.ID)
	w.run(uuid.New())
	w.refuses(ws.ID, uuid.Nil, "zone", "muc1", "cannot be changed after the workspace was created")

	zones = []string{"ber1", "ber2"}
	newer := w.Version(&made.ID, w.found(nil))
	if _, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{
		TemplateVersionID: newer.ID, RichParameterValues: []sdk.ParameterValue{{Name: "zone", Value: "ber2"}},
	}); err != nil {
		t.Fatal(err)
	}
	if got := w.run(uuid.New())["zone"]; got != "fra1" {
		t.Errorf("the stop builds in %q, want fra1", got)
	}
	if got := w.run(uuid.New())["zone"]; got != "ber2" {
		t.Errorf("the start after it builds in %q, want ber2", got)
	}
	w.refuses(ws.ID, newer.ID, "zone", "ber1", "cannot be changed after the workspace was created")
}

// TestAutostartKeepsComputedValues checks that a scheduled start with another version of the template keeps the values.
func TestAutostartKeepsComputedValues(t *testing.T) {
	t.Parallel()
	w := newComputing(t)
	made := w.Template("zones", w.found(nil))
	ws := w.Workspace("ann", "dev", made.ID)
	w.run(uuid.New())
	w.Build("ann", ws.ID, sdk.TransitionStop)
	w.run(uuid.New())
	w.defaults["zone"] = "ber1"
	newer := w.Version(&made.ID, w.found(nil))
	if err := w.As("tom").UpdateActiveVersion(t.Context(), made.ID, sdk.UpdateActiveVersionRequest{ID: newer.ID}); err != nil {
		t.Fatal(err)
	}
	edit(t, w.Server, made.ID, sdk.TemplatePolicy{}, func(r *sdk.UpdateTemplateRequest) { r.RequireActiveVersion = ptr(true) })
	if err := w.As("ann").UpdateAutostart(t.Context(), ws.ID, sdk.UpdateAutostartRequest{Schedule: ptr("CRON_TZ=UTC 30 9 * * *")}); err != nil {
		t.Fatal(err)
	}
	schedule(t, w.Server, *w.Get(ws.ID).NextStartAt)
	if got := w.Get(ws.ID).LatestBuild; got.Reason != sdk.ReasonAutostart || got.TemplateVersionID != newer.ID {
		t.Fatalf("the latest build is by %s, of version %s", got.Reason, got.TemplateVersionID)
	}
	if got := w.run(uuid.New())["zone"]; got != "fra1" {
		t.Errorf("the scheduled start builds in %q, want fra1", got)
	}
}

// TestClaimKeepsImmutableComputedValues checks what a user gets with a prebuilt workspace: what was computed for it and cannot change stays, what
// can change is computed for the user.
func TestClaimKeepsImmutableComputedValues(t *testing.T) {
	t.Parallel()
	w := &pool{Server: coderdtest.New(t), now: time.Now()}
	c := newComputing(t)
	w.Server = c.Server
	w.template = w.Template("zones", c.found(&provisionerpb.Prebuilds{Instances: 1}))
	w.preset = w.presetOf(w.template.ActiveVersionID)
	w.run(1)
	agent := uuid.New()
	c.run(agent)
	w.ready(agent)

	c.defaults = map[string]string{"zone": "ber1", "size": "5", "once": "ann"}
	ws, err := w.create("ann", "mine")
	if err != nil {
		t.Fatal(err)
	}
	if ws.LatestBuild.BuildNumber != 2 {
		t.Fatalf("ann got build %d: no prebuilt workspace", ws.LatestBuild.BuildNumber)
	}
	c.check("the claim builds with", c.run(agent), map[string]string{"country": "de", "zone": "fra1", "size": "5", "once": "ann"})
	c.refuses(ws.ID, uuid.Nil, "zone", "ber1", "cannot be changed after the workspace was created")
}
