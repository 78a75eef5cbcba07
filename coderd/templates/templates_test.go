package templates_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// found returns what an import finds in a rich template.
func found() *provisionerpb.ImportResult {
	return &provisionerpb.ImportResult{
		Readme: "# hello",
		Variables: []*provisionerpb.TemplateVariable{
			{Name: "image", Type: "string", DefaultValue: "debian"},
			{Name: "secret", Type: "string", Required: true, Sensitive: true, DefaultValue: ""},
		},
		Parameters: []*provisionerpb.Parameter{
			{Name: "zone", Type: "string", Order: 2, DefaultValue: "a", Options: []*provisionerpb.ParameterOption{{Name: "A", Value: "a"}, {Name: "B", Value: "b"}}},
			{Name: "cpus", Type: "number", Order: 1, DefaultValue: "2", Mutable: true, Validation: &provisionerpb.ParameterValidation{Max: ptr[int64](8)}},
		},
		Presets:        []*provisionerpb.Preset{{Name: "big", Default: true, Parameters: []*provisionerpb.ParameterValue{{Name: "cpus", Value: "8"}}}},
		ExternalAuth:   []*provisionerpb.ExternalAuth{{Id: "github", Optional: true}},
		WorkspaceTags:  map[string]string{"zone": "a"},
		StartResources: []*provisionerpb.Resource{coderdtest.Resource(uuid.Nil), {Type: "docker_volume", Name: "home"}},
		StopResources:  []*provisionerpb.Resource{{Type: "docker_volume", Name: "home"}},
	}
}

func TestImport(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t, coderdtest.GitHub)
	w.Daemon()
	tom := w.As("tom")
	made, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{
		StorageMethod: "file", FileID: w.File("tom"), Provisioner: "terraform", Tags: sdk.Map[string]{},
		UserVariableValues: []sdk.VariableValue{{Name: "secret", Value: "hush"}, {Name: "unknown", Value: "x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if made.Name == "" || made.Job.Status != sdk.JobPending && made.Job.Status != sdk.JobRunning || made.CreatedBy.Username != "tom" || made.TemplateID != nil {
		t.Errorf("new version: %+v", made)
	}
	if made.MatchedProvisioners == nil || made.MatchedProvisioners.Count != 1 {
		t.Errorf("matched provisioners: %+v", made.MatchedProvisioners)
	}
	if _, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "x", VersionID: made.ID}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("template of a version that is not imported: %v, want conflict", err)
	}
	job := w.Daemon().Next()
	offer := job.GetTemplateImport()
	if len(offer.GetVariables()) != 2 || offer.GetVariables()[0].GetValue() != "hush" || offer.GetMetadata().GetOwnerName() != "tom" ||
		offer.GetMetadata().GetAccessUrl() == "" || offer.GetMetadata().GetOwnerSessionToken() != "" {
		t.Errorf("offer: %v", offer)
	}
	job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found()}})
	v, err := tom.TemplateVersion(t.Context(), made.ID)
	if err != nil || v.Job.Status != sdk.JobSucceeded || v.Job.CompletedAt == nil || v.Readme != "# hello" {
		t.Fatalf("imported version: %+v, %v", v, err)
	}
	parameters, err := tom.TemplateVersionParameters(t.Context(), v.ID)
	if err != nil || len(parameters) != 2 || parameters[0].Name != "cpus" || *parameters[0].ValidationMax != 8 || len(parameters[1].Options) != 2 {
		t.Errorf("parameters: %+v, %v", parameters, err)
	}
	if _, err := w.As("ann").TemplateVersionParameters(t.Context(), v.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("a member reads a version without a template: %v", err)
	}
	presets, err := tom.TemplateVersionPresets(t.Context(), v.ID)
	if err != nil || len(presets) != 1 || !presets[0].Default || presets[0].Parameters[0].Value != "8" {
		t.Errorf("presets: %+v, %v", presets, err)
	}
	variables, err := tom.TemplateVersionVariables(t.Context(), v.ID)
	want := []sdk.TemplateVersionVariable{
		{Name: "image", Type: "string", Value: "debian", DefaultValue: "debian"},
		{Name: "secret", Type: "string", Required: true, Sensitive: true},
	}
	if diff := cmp.Diff(want, variables); err != nil || diff != "" {
		t.Errorf("variables (-want +got): %v\n%s", err, diff)
	}
	resources, err := tom.TemplateVersionResources(t.Context(), v.ID)
	if err != nil || len(resources) != 3 {
		t.Errorf("resources: %+v, %v", resources, err)
	}
	auth, err := tom.TemplateVersionExternalAuth(t.Context(), v.ID)
	if err != nil || len(auth) != 1 || auth[0].ID != "github" || !auth[0].Optional || auth[0].Authenticated || auth[0].DisplayName != "GitHub" ||
		auth[0].AuthenticateURL != w.URL.String()+"/external-auth/github" {
		t.Errorf("external auth: %+v, %v", auth, err)
	}
	logs, err := tom.TemplateVersionLogs(t.Context(), v.ID, 0)
	logs = slices.DeleteFunc(logs, func(l sdk.JobLog) bool { return l.Stage == "Queued" }) // a job that waits for a moment logs why
	if err != nil || len(logs) != 0 {
		t.Errorf("logs: %v, %v", logs, err)
	}

	// The next version of the template keeps the values that users cannot read.
	template, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "rich", VersionID: v.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{TemplateID: &template.ID, FileID: w.File("tom")}); err != nil {
		t.Fatal(err)
	}
	next := w.Daemon().Next().GetTemplateImport()
	if len(next.GetVariables()) != 1 || next.GetVariables()[0].GetValue() != "hush" || next.GetMetadata().GetTemplateName() != "rich" {
		t.Errorf("next import: %v", next)
	}
}

// TestFilesWithVariables: the source's own files set variables. A request overrides them, and they override what the active version was given.
func TestFilesWithVariables(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	w.Daemon()
	tom := w.As("tom")
	pack := func(files ...string) (file uuid.UUID) {
		var out bytes.Buffer
		packed := tar.NewWriter(&out)
		for i := 0; i < len(files); i += 2 {
			err := packed.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))})
			if _, werr := io.WriteString(packed, files[i+1]); errors.Join(err, werr) != nil {
				t.Fatal(err, werr)
			}
		}
		if err := packed.Close(); err != nil {
			t.Fatal(err)
		}
		w.Archive = out.Bytes()
		return w.File("tom")
	}
	imported := func(req sdk.CreateTemplateVersionRequest) (sdk.TemplateVersion, map[string]string) {
		t.Helper()
		v, err := tom.CreateTemplateVersion(t.Context(), "default", req)
		if err != nil {
			t.Fatal(err)
		}
		job := w.Daemon().Next()
		given := map[string]string{}
		for _, v := range job.GetTemplateImport().GetVariables() {
			given[v.GetName()] = v.GetValue()
		}
		result := found()
		result.Variables = []*provisionerpb.TemplateVariable{{Name: "image", Type: "string", Required: true}, {Name: "secret", Type: "string", Sensitive: true}}
		job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: result}})
		return v, given
	}
	file := pack("terraform.tfvars", "image = \"debian\"\nsecret = \"hush\"\n", "z.auto.tfvars", "image = \"alpine\"\n")
	v, given := imported(sdk.CreateTemplateVersionRequest{FileID: file})
	if diff := cmp.Diff(map[string]string{"image": "alpine", "secret": "hush"}, given); diff != "" {
		t.Errorf("values from files (-want +got):\n%s", diff)
	}
	variables, err := tom.TemplateVersionVariables(t.Context(), v.ID)
	if err != nil || len(variables) != 2 || variables[0].Value != "alpine" || variables[1].Value != "" {
		t.Errorf("variables: %+v, %v", variables, err)
	}
	template, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "files", VersionID: v.ID})
	if err != nil {
		t.Fatal(err)
	}
	if _, given = imported(sdk.CreateTemplateVersionRequest{TemplateID: &template.ID, FileID: file, UserVariableValues: []sdk.VariableValue{{Name: "image", Value: "fedora"}}}); given["image"] != "fedora" {
		t.Errorf("with a value in the request: %v", given)
	}
	file = pack("terraform.tfvars", "image = \"arch\"\n")
	if _, given = imported(sdk.CreateTemplateVersionRequest{TemplateID: &template.ID, FileID: file}); given["image"] != "arch" || given["secret"] != "hush" {
		t.Errorf("with another file: %v", given)
	}
	file = pack("terraform.tfvars", "image = \"arch\"\nimage = = 2\n")
	if _, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: file}); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "terraform.tfvars:2: ") {
		t.Errorf("with a file that is not Terraform's: %v", err)
	}
}

func TestFailedImport(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	v, err := w.As("tom").CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: w.File("tom")})
	if err != nil {
		t.Fatal(err)
	}
	w.Daemon().Next().Finish(&provisionerpb.Result{
		Error: "variable secret is not set", ErrorCode: "REQUIRED_TEMPLATE_VARIABLES",
		Of: &provisionerpb.Result_TemplateImport{TemplateImport: found()},
	})
	if v, err = w.As("tom").TemplateVersion(t.Context(), v.ID); err != nil || v.Job.Status != sdk.JobFailed || v.Job.ErrorCode != sdk.JobErrorMissingVariables {
		t.Errorf("version: %+v, %v", v, err)
	}
	if variables, err := w.As("tom").TemplateVersionVariables(t.Context(), v.ID); err != nil || len(variables) != 2 {
		t.Errorf("variables: %+v, %v: a failed import names them", variables, err)
	}
	if parameters, err := w.As("tom").TemplateVersionParameters(t.Context(), v.ID); err != nil || len(parameters) != 0 {
		t.Errorf("parameters: %+v, %v, want none", parameters, err)
	}
	if _, err := w.As("tom").CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "x", VersionID: v.ID}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("template of a failed version: %v, want invalid", err)
	}
}

func TestVersionRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	file := w.File("tom")
	for name, req := range map[string]sdk.CreateTemplateVersionRequest{
		"name":           {FileID: file, Name: "no spaces"},
		"storage":        {FileID: file, StorageMethod: "git"},
		"provisioner":    {FileID: file, Provisioner: "pulumi"},
		"no file":        {FileID: uuid.New()},
		"no template":    {FileID: file, TemplateID: ptr(uuid.New())},
		"variable twice": {FileID: file, UserVariableValues: []sdk.VariableValue{{Name: "a"}, {Name: "a"}}},
	} {
		if _, err := w.As("tom").CreateTemplateVersion(t.Context(), "default", req); fault.CodeOf(err) != fault.Invalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
}

func TestTemplates(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tom, ann := w.As("tom"), w.As("ann")
	template := w.Template("process", found())
	if _, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "other", VersionID: template.ActiveVersionID}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("a version in two templates: %v, want conflict", err)
	}
	second := w.Version(nil, found())
	if _, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "PROCESS", VersionID: second.ID}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("name taken: %v, want conflict", err)
	}
	if _, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "no spaces", VersionID: second.ID}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("name: %v, want invalid", err)
	}
	updated, err := tom.UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{DisplayName: ptr("Process"), DefaultTTLMillis: ptr[int64](3600_000)})
	if err != nil || updated.DisplayName != "Process" || updated.DefaultTTLMillis != 3600_000 || updated.Name != "process" {
		t.Errorf("update: %+v, %v", updated, err)
	}
	if _, err := tom.UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{FixedTemplateSettings: sdk.FixedTemplateSettings{DisableModuleCache: ptr(true)}}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a setting that there is not: %v, want invalid", err)
	}
	for q, want := range map[string]int{"": 1, "name:proc": 1, "exact_name:proc": 0, "exact_name:process": 1, "deprecated:true": 0, "organization:default": 1, "organization:x": 0} {
		if got, err := ann.Templates(t.Context(), q, ""); err != nil || len(got) != want {
			t.Errorf("templates %q: %d, %v, want %d", q, len(got), err, want)
		}
	}
	if _, err := ann.Templates(t.Context(), "color:red", ""); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("unknown search: %v, want invalid", err)
	}
	if got, err := ann.TemplateByName(t.Context(), "default", "process"); err != nil || got.ID != template.ID || got.CreatedByName != "tom" {
		t.Errorf("by name: %+v, %v", got, err)
	}

	next := w.Version(&template.ID, found())
	if err := tom.UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: second.ID}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("another template's version made active: %v, want invalid", err)
	}
	if err := tom.UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: next.ID}); err != nil {
		t.Fatal(err)
	}
	versions, err := ann.TemplateVersions(t.Context(), template.ID)
	if err != nil || len(versions) != 2 || versions[1].ID != next.ID {
		t.Errorf("versions: %+v, %v, want two, the newest last", versions, err)
	}
	if got, err := tom.UpdateTemplateVersion(t.Context(), next.ID, sdk.UpdateTemplateVersionRequest{Name: "v2.0", Message: ptr("better")}); err != nil || got.Name != "v2.0" || got.Message != "better" {
		t.Errorf("renamed version: %+v, %v", got, err)
	}
	if _, err := tom.UpdateTemplateVersion(t.Context(), next.ID, sdk.UpdateTemplateVersionRequest{Name: versions[0].Name}); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("version's name taken: %v, want conflict", err)
	}
	if got, err := ann.TemplateVersionByName(t.Context(), template.ID, "V2.0"); err != nil || got.ID != next.ID {
		t.Errorf("version by name: %+v, %v", got, err)
	}
	acl, err := ann.TemplateACL(t.Context(), template.ID)
	if err != nil || len(acl.Groups) != 1 || acl.Groups[0].Role != "use" {
		t.Errorf("acl: %+v, %v", acl, err)
	}
	if err := tom.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{UserPerms: map[string]string{uuid.NewString(): "admin"}}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a right that there is not: %v, want invalid", err)
	}

	ws := w.Workspace("ann", "dev", template.ID)
	err = tom.DeleteTemplate(t.Context(), template.ID)
	if f := fault.As(err); f == nil || f.Code != fault.Conflict || !strings.Contains(f.Detail, "ann/dev") {
		t.Errorf("template in use deleted: %v, want a conflict that names ann/dev", err)
	}
	w.Exec(`UPDATE workspaces SET deleted_at = now() WHERE id = $1`, ws.ID)
	if err := tom.DeleteTemplate(t.Context(), template.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := tom.Template(t.Context(), template.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("deleted template: %v, want not found", err)
	}
	// Its name is free again.
	if _, err := tom.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "process", VersionID: second.ID}); err != nil {
		t.Error(err)
	}
}

func TestMembersMayNotChangeTemplates(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", found())
	ann := w.As("ann")
	_, create := ann.CreateTemplate(t.Context(), "default", sdk.CreateTemplateRequest{Name: "mine", VersionID: template.ActiveVersionID})
	_, upload := ann.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: w.File("tom")})
	_, update := ann.UpdateTemplate(t.Context(), template.ID, sdk.UpdateTemplateRequest{Name: ptr("mine")})
	_, rename := ann.UpdateTemplateVersion(t.Context(), template.ActiveVersionID, sdk.UpdateTemplateVersionRequest{Name: "mine"})
	_, variables := ann.TemplateVersionVariables(t.Context(), template.ActiveVersionID)
	for name, err := range map[string]error{
		"create": create, "upload": upload, "update": update, "rename version": rename, "variables": variables,
		"delete":   ann.DeleteTemplate(t.Context(), template.ID),
		"activate": ann.UpdateActiveVersion(t.Context(), template.ID, sdk.UpdateActiveVersionRequest{ID: template.ActiveVersionID}),
		"cancel":   ann.CancelTemplateVersion(t.Context(), template.ActiveVersionID),
		"acl":      ann.UpdateTemplateACL(t.Context(), template.ID, sdk.UpdateTemplateACLRequest{}),
	} {
		if fault.CodeOf(err) != fault.Forbidden {
			t.Errorf("%s: %v, want forbidden", name, err)
		}
	}
	if _, err := w.With("").Templates(t.Context(), "", ""); fault.CodeOf(err) != fault.Unauthenticated {
		t.Errorf("nobody: %v, want unauthenticated", err)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", func() *provisionerpb.ImportResult { f := found(); f.WorkspaceTags = nil; return f }())
	version, other := template.ActiveVersionID, w.Version(nil, found()).ID
	ann := w.As("ann")
	if _, err := ann.CreateDryRun(t.Context(), version, sdk.CreateDryRunRequest{RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "99"}}}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("parameter out of bounds: %v, want invalid", err)
	}
	run, err := ann.CreateDryRun(t.Context(), version, sdk.CreateDryRunRequest{WorkspaceName: "dev", RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "4"}}})
	if err != nil || run.Type != sdk.JobTemplateDryRun {
		t.Fatalf("dry run: %+v, %v", run, err)
	}
	if _, err := ann.DryRunResources(t.Context(), version, run.ID); fault.CodeOf(err) != fault.Conflict {
		t.Errorf("resources before the end: %v, want conflict", err)
	}
	if m, err := ann.DryRunMatchedProvisioners(t.Context(), version, run.ID); err != nil || m.Count != 1 {
		t.Errorf("matched provisioners: %+v, %v", m, err)
	}
	if _, err := w.As("bob").DryRun(t.Context(), version, run.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another's dry run: %v, want not found", err)
	}
	if _, err := ann.DryRun(t.Context(), other, run.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("dry run of another version: %v, want not found", err)
	}
	if err := w.As("bob").CancelDryRun(t.Context(), version, run.ID); fault.CodeOf(err) != fault.NotFound {
		t.Errorf("another's dry run canceled: %v, want not found", err)
	}
}

func TestDryRunRuns(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", func() *provisionerpb.ImportResult { f := found(); f.WorkspaceTags = nil; return f }())
	ann := w.As("ann")
	run, err := ann.CreateDryRun(t.Context(), template.ActiveVersionID, sdk.CreateDryRunRequest{WorkspaceName: "dev", RichParameterValues: []sdk.ParameterValue{{Name: "cpus", Value: "4"}}})
	if err != nil {
		t.Fatal(err)
	}
	job := w.Daemon().Next()
	offer := job.GetTemplateDryRun()
	if offer.GetMetadata().GetWorkspaceName() != "dev" || len(offer.GetParameters()) != 2 || offer.GetParameters()[0].GetValue() != "4" {
		t.Errorf("offer: %v", offer)
	}
	job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateDryRun{TemplateDryRun: &provisionerpb.DryRunResult{Resources: []*provisionerpb.Resource{coderdtest.Resource(uuid.Nil)}}}})
	if run, err = ann.DryRun(t.Context(), template.ActiveVersionID, run.ID); err != nil || run.Status != sdk.JobSucceeded {
		t.Errorf("dry run: %+v, %v", run, err)
	}
	resources, err := ann.DryRunResources(t.Context(), template.ActiveVersionID, run.ID)
	if err != nil || len(resources) != 1 || len(resources[0].Agents) != 1 {
		t.Errorf("resources: %+v, %v", resources, err)
	}
	if resp, err := http.Get(w.URL.String() + "/api/v2/templateversions/" + template.ActiveVersionID.String() + "/dry-run/" + run.ID.String()); err != nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
}

// TestOrderOfTemplates checks each order of the list, in all organizations and in one.
func TestOrderOfTemplates(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	made := map[string]sdk.Template{}
	for i, name := range []string{"vm-10", "vm-9", "app"} {
		made[name] = w.Template(name, nil)
		w.Exec(`UPDATE templates SET updated_at = '2026-01-01'::timestamptz + make_interval(days => $1) WHERE id = $2`, i, made[name].ID)
	}
	w.Running("ann", "one", made["vm-9"].ID)
	w.Running("ann", "two", made["vm-9"].ID)
	w.Running("ann", "three", made["vm-10"].ID)
	w.Running("bob", "four", made["vm-10"].ID)
	names := func(list []sdk.Template, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, x := range list {
			out = append(out, x.Name)
		}
		return strings.Join(out, " ")
	}
	ann := w.As("ann")
	for order, want := range map[sdk.TemplateOrder]string{
		"": "app vm-10 vm-9", sdk.TemplatesByName: "app vm-9 vm-10", sdk.TemplatesByUsers: "vm-10 vm-9 app", sdk.TemplatesByUpdated: "app vm-9 vm-10",
	} {
		if got := names(ann.Templates(t.Context(), "", order)); got != want {
			t.Errorf("by %q: got %q, want %q", order, got, want)
		}
		if got := names(ann.OrganizationTemplates(t.Context(), w.Org.String(), order)); got != want {
			t.Errorf("of an organization by %q: got %q, want %q", order, got, want)
		}
	}
	if _, err := ann.Templates(t.Context(), "", "icon"); fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), "icon") {
		t.Errorf("by icon: %v", err)
	}
}

// TestListOfVersions checks the pages of a list, its orders and its search.
func TestListOfVersions(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("process", nil)
	for i, name := range []string{"one", "two", "one-two"} {
		v := template.ActiveVersionID
		if i > 0 {
			v = w.Version(&template.ID, nil).ID
		}
		if _, err := w.As("tom").UpdateTemplateVersion(t.Context(), v, sdk.UpdateTemplateVersionRequest{Name: name, Message: ptr("message " + name)}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(query string) (status int, names string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL.String()+"/api/v2/templates/"+template.ID.String()+"/versions?"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(sdk.SessionHeader, w.Token("ann"))
		res, err := w.As("ann").HTTP().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return res.StatusCode, ""
		}
		var versions []sdk.TemplateVersion
		if err := json.NewDecoder(res.Body).Decode(&versions); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, v := range versions {
			all = append(all, v.Name)
		}
		return res.StatusCode, strings.Join(all, " ")
	}
	for query, want := range map[string]string{
		"": "one two one-two", "sort=created": "one-two two one", "sort=created&limit=1&offset=1": "two", "offset=3": "",
		"q=TWO": "two one-two", "q=name:one": "one one-two", "q=one&sort=created&limit=1": "one", `q=search:"message+two"`: "two", "q=nosuch": "",
	} {
		if status, got := list(query); status != http.StatusOK || got != want {
			t.Errorf("versions?%s: status %d, %q, want %q", query, status, got, want)
		}
	}
	for _, query := range []string{"sort=name", "q=color:red", "offset=-1"} {
		if status, _ := list(query); status != http.StatusBadRequest {
			t.Errorf("versions?%s: status %d, want 400", query, status)
		}
	}
}
