package workspaces_test

import (
	"archive/tar"
	"bytes"
	"fmt"
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

// tagged returns a template that was imported with tags from a source.
func tagged(w *coderdtest.Server, name, source string, found *provisionerpb.ImportResult) (sdk.Template, sdk.ProvisionerJob) {
	w.T.Helper()
	var archive bytes.Buffer
	tw := tar.NewWriter(&archive)
	if err := tw.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(source))}); err != nil {
		w.T.Fatal(err)
	}
	if _, err := tw.Write([]byte(source)); err != nil {
		w.T.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		w.T.Fatal(err)
	}
	file := w.File("tom")
	w.Exec("UPDATE files SET data = $2 WHERE id = $1", file, archive.Bytes())
	v, err := w.As("tom").CreateTemplateVersion(w.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateVersionRequest{
		StorageMethod: sdk.StorageFile, FileID: file, Provisioner: sdk.ProvisionerTerraform,
	})
	if err != nil {
		w.T.Fatal(err)
	}
	w.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
	v, err = w.As("tom").TemplateVersion(w.T.Context(), v.ID)
	if err != nil {
		w.T.Fatal(err)
	}
	if v.Job.Status != sdk.JobSucceeded {
		return sdk.Template{}, v.Job
	}
	t, err := w.As("tom").CreateTemplate(w.T.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: name, VersionID: v.ID})
	if err != nil {
		w.T.Fatal(err)
	}
	return t, v.Job
}

const byRegion = `
data "coder_parameter" "region" {
  name    = "region"
  default = "eu"
  mutable = true
}
data "coder_workspace_tags" "x" {
  tags = { pool = "${data.coder_parameter.region.value}-rack" }
}
`

func regional() *provisionerpb.ImportResult {
	return &provisionerpb.ImportResult{
		WorkspaceTags: map[string]string{"pool": "eu-rack"},
		Parameters:    []*provisionerpb.Parameter{{Name: "region", Type: "string", DefaultValue: "eu", Mutable: true}},
	}
}

// TestTagsOfParameters checks that tags that depend on parameters follow from the build's values and not from the defaults.
func TestTagsOfParameters(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tmpl, _ := tagged(w, "regional", byRegion, regional())
	for _, c := range []struct{ region, pool string }{{"", "eu-rack"}, {"us", "us-rack"}} {
		var values []sdk.ParameterValue
		if c.region != "" {
			values = []sdk.ParameterValue{{Name: "region", Value: c.region}}
		}
		ws := w.Workspace("ann", "dev-"+c.pool[:2], tmpl.ID, values...)
		if got := ws.LatestBuild.Job.Tags["pool"]; got != c.pool {
			t.Errorf("region %q goes to the pool %q, want %q", c.region, got, c.pool)
		}
		if !strings.Contains(ws.LatestBuild.Job.WaitingReason, "pool="+c.pool) {
			t.Errorf("the reason at once is %q", ws.LatestBuild.Job.WaitingReason)
		}
		if m := ws.LatestBuild.MatchedProvisioners; m == nil || m.Count != 0 {
			t.Errorf("matched: %+v", m)
		}
		if err := w.As("ann").CancelBuild(t.Context(), ws.LatestBuild.ID); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("x", 300)
	_, err := w.As("ann").CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: tmpl.ID, Name: "long", RichParameterValues: []sdk.ParameterValue{{Name: "region", Value: long}}})
	if fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a tag that is too long: %v", err)
	}
}

// TestTagsThatCannotBeComputed checks that tags that cannot be known before a build runs fail the import, and the error
// names the place.
func TestTagsThatCannotBeComputed(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	_, job := tagged(w, "nope", strings.Replace(byRegion, `"${data.coder_parameter.region.value}-rack"`, `data.coder_workspace.me.name`, 1), regional())
	if job.Status != sdk.JobFailed || !strings.Contains(job.Error, "main.tf:8") || !strings.Contains(job.Error, "data.coder_workspace.me") {
		t.Errorf("%s: %q", job.Status, job.Error)
	}
}

// TestTagsNeverDropped checks that an import fails if the provisioner reports fewer tags than the source declares, or others.
func TestTagsNeverDropped(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	const block = "data \"coder_workspace_tags\" \"x\" {\n  tags = { environment = \"secure\", dc = %s }\n}\n"
	other := regional()
	other.WorkspaceTags["pool"] = "us-rack"
	hidden := &provisionerpb.ImportResult{WorkspaceTags: map[string]string{"environment": "secure"}, TagPlaces: []string{"main.tf:3"}, ComputedTags: true}
	for name, c := range map[string]struct {
		source string
		found  *provisionerpb.ImportResult
		want   string
	}{
		"unknown":    {fmt.Sprintf(block, "terraform_data.r.output"), &provisionerpb.ImportResult{}, "main.tf:2: terraform_data is not known by then"},
		"unread":     {fmt.Sprintf(block, "timestamp()"), &provisionerpb.ImportResult{}, "main.tf:2: the provisioner found no value"},
		"different":  {byRegion, other, "main.tf:8: The template's coder_workspace_tags cannot be computed before a build runs: the server computes pool=eu-rack, and Terraform pool=us-rack"},
		"depends_on": {fmt.Sprintf(block, `"x"`), hidden, "main.tf:3: coder_workspace_tags depends on data that its expression does not show"},
	} {
		_, job := tagged(w, name, c.source, c.found)
		if job.Status != sdk.JobFailed || !strings.Contains(job.Error, c.want) {
			t.Errorf("%s: %s: %q, want %q", name, job.Status, job.Error, c.want)
		}
	}
}

// TestTagsOfBuild checks that a build may ask for more tags than its template has, for itself and later builds, but never
// for different ones.
func TestTagsOfBuild(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tmpl, _ := tagged(w, "fixed", "", &provisionerpb.ImportResult{WorkspaceTags: map[string]string{"environment": "on_prem"}})
	create := func(name string, tags map[string]string) (sdk.Workspace, error) {
		return w.As("ann").CreateWorkspace(t.Context(), sdk.Me, sdk.CreateWorkspaceRequest{TemplateID: tmpl.ID, Name: name, ProvisionerTags: tags})
	}
	for name, tags := range map[string]map[string]string{
		"another environment": {"environment": "cloud"},
		"a user's own":        {"scope": "user"},
		"somebody's":          {"owner": uuid.NewString()},
		"no key":              {"": "x"},
	} {
		if _, err := create("refused", tags); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	ws, err := create("dev", map[string]string{"data_center": "chicago", "environment": "on_prem"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(b sdk.WorkspaceBuild, want map[string]string) {
		t.Helper()
		want["scope"], want["owner"] = "organization", ""
		if diff := cmp.Diff(want, map[string]string(b.Job.Tags)); diff != "" {
			t.Errorf("build %d (-want +got):\n%s", b.BuildNumber, diff)
		}
		if err := w.As("ann").CancelBuild(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
	}
	check(ws.LatestBuild, map[string]string{"environment": "on_prem", "data_center": "chicago"})
	check(w.Build("ann", ws.ID, sdk.TransitionStop), map[string]string{"environment": "on_prem", "data_center": "chicago"})
	for _, tags := range []map[string]string{{"data_center": "paris"}, {}} {
		b, err := w.As("ann").CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, ProvisionerTags: tags})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"environment": "on_prem"}
		for k, v := range tags {
			want[k] = v
		}
		check(b, want)
	}
}

// TestStateAtRest checks that the database holds no readable state; the people and jobs that may have the state get it as it
// was.
func TestStateAtRest(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tmpl := w.Template("plain", &provisionerpb.ImportResult{})
	ws := w.Workspace("ann", "dev", tmpl.ID)
	job := w.Daemon().Next()
	stored := func() []byte {
		var state []byte
		if err := w.DB.Pool.QueryRow(t.Context(), "SELECT state FROM workspace_builds WHERE workspace_id = $1 ORDER BY build_number DESC LIMIT 1", ws.ID).Scan(&state); err != nil {
			t.Fatal(err)
		}
		return state
	}
	pull := func() string {
		var out bytes.Buffer
		if err := w.As("olga").BuildState(t.Context(), w.Get(ws.ID).LatestBuild.ID, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	job.Checkpoint(`{"secret": 1}`)
	if got := stored(); len(got) == 0 || bytes.Contains(got, []byte("secret")) {
		t.Errorf("the checkpoint is stored as %q", got)
	}
	job.Finish(coderdtest.Built(`{"secret": 2}`))
	if got := stored(); bytes.Contains(got, []byte("secret")) {
		t.Errorf("the result is stored as %q", got)
	}
	if got := pull(); got != `{"secret": 2}` {
		t.Errorf("pulled %q", got)
	}
	if err := w.As("olga").UpdateBuildState(t.Context(), w.Get(ws.ID).LatestBuild.ID, sdk.UpdateStateRequest{State: []byte(`{"version": 4, "lineage": "l", "serial": 1, "secret": 3}`)}); err != nil {
		t.Fatal(err)
	}
	if got := stored(); bytes.Contains(got, []byte("secret")) {
		t.Errorf("what was pushed is stored as %q", got)
	}
	w.Build("ann", ws.ID, sdk.TransitionStop)
	next := w.Daemon().Next()
	if got := string(next.GetWorkspaceBuild().GetState()); got != `{"version": 4, "lineage": "l", "serial": 1, "secret": 3}` {
		t.Errorf("the next build has %q", got)
	}
	next.Finish(coderdtest.Built(`{"secret": 4}`))

	// With another key the next build fails, reports why, and leaves the state unchanged.
	other := coderdtest.Keyring(t)
	lost := other.Seal(ws.ID, []byte(`{"secret": 5}`))
	w.Exec("UPDATE workspace_builds SET state = $2 WHERE id = $1", w.Get(ws.ID).LatestBuild.ID, lost)
	b := w.Build("ann", ws.ID, sdk.TransitionStart)
	w.Daemon().Ready()
	testwait.Until(t, "the build's end", func() error {
		got, err := w.As("ann").Build(t.Context(), b.ID)
		if err != nil {
			t.Fatal(err)
		}
		b = got
		return testwait.Unless(b.Job.Status.Ended(), "its job is %+v", b.Job)
	})
	if b.Job.Status != sdk.JobFailed || !strings.Contains(b.Job.Error, "--state-encryption-key-file") {
		t.Errorf("%s: %q", b.Job.Status, b.Job.Error)
	}
	if got := stored(); !bytes.Equal(got, lost) {
		t.Error("the state was touched")
	}
	for _, name := range []string{"ann", "bob", "tom"} { // the owner of a workspace must not see its template's credentials
		var out bytes.Buffer
		if err := w.As(name).BuildState(t.Context(), b.ID, &out); err == nil || out.Len() > 0 {
			t.Errorf("%s reads the state", name)
		}
		if err := w.As(name).UpdateBuildState(t.Context(), b.ID, sdk.UpdateStateRequest{State: []byte("{}")}); err == nil {
			t.Errorf("%s replaces the state", name)
		}
		if _, err := w.As(name).CreateBuild(t.Context(), ws.ID, sdk.CreateBuildRequest{Transition: sdk.TransitionStart, ProvisionerState: []byte("{}")}); err == nil {
			t.Errorf("%s builds from another state", name)
		}
	}
}
