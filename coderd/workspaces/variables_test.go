package workspaces_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestOnlyGivenVariables checks that jobs get the values of variables that were given, an empty one too, and no defaults: text cannot hold a
// null, and Terraform knows the defaults.
func TestOnlyGivenVariables(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	tom := w.As("tom")
	found := &provisionerpb.ImportResult{Variables: []*provisionerpb.TemplateVariable{
		{Name: "count", Type: "number"}, {Name: "empty", Type: "string"}, {Name: "list", Type: "list(string)"}, {Name: "same", Type: "string", DefaultValue: "x"},
	}}
	want := []*provisionerpb.VariableValue{{Name: "empty"}, {Name: "same", Value: "x"}}
	push := func(req sdk.CreateTemplateVersionRequest) sdk.TemplateVersion {
		req.FileID = w.File("tom")
		v, err := tom.CreateTemplateVersion(t.Context(), sdk.DefaultOrganization, req)
		if err != nil {
			t.Fatal(err)
		}
		job := w.Daemon().Next()
		got := job.Offer.GetTemplateImport().GetVariables()
		if diff := cmp.Diff(want, got, protocmp.Transform(), protocmp.IgnoreFields(&provisionerpb.VariableValue{}, "sensitive")); diff != "" {
			t.Errorf("import (-want +got):\n%s", diff)
		}
		job.Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
		return v
	}
	v := push(sdk.CreateTemplateVersionRequest{UserVariableValues: []sdk.VariableValue{{Name: "empty"}, {Name: "same", Value: "x"}}})
	tmpl, err := tom.CreateTemplate(t.Context(), sdk.DefaultOrganization, sdk.CreateTemplateRequest{Name: "t", VersionID: v.ID})
	if err != nil {
		t.Fatal(err)
	}
	w.Workspace("ann", "dev", tmpl.ID)
	job := w.Daemon().Next()
	if diff := cmp.Diff(want, job.Offer.GetWorkspaceBuild().GetVariables(), protocmp.Transform()); diff != "" {
		t.Errorf("build (-want +got):\n%s", diff)
	}
	job.Finish(coderdtest.Built(""))
	// The template's next version keeps what was given.
	push(sdk.CreateTemplateVersionRequest{TemplateID: &tmpl.ID})
}
