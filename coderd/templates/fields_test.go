package templates_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// elsewhere has the fields of an import's result that the API does not show as part of the version, and what uses them.
var elsewhere = map[string]string{
	"ImportResult.start_resources":               "TestEveryFieldArrives in coderd/agents",
	"ImportResult.stop_resources":                "TestEveryFieldArrives in coderd/agents",
	"ImportResult.workspace_tags":                "builds compute them: TestTagsOfBuild in coderd/workspaces",
	"ImportResult.tag_places":                    "refusals name them: TestTagsNeverDropped in coderd/workspaces",
	"ImportResult.computed_tags":                 "refused without an expression to compute: TestTagsNeverDropped in coderd/workspaces",
	"ImportResult.names_owner_session_token":     "builds give it then: TestOwnersSecretsOnlyWhereNamed in coderd/workspaces",
	"ImportResult.names_owner_ssh_private_key":   "builds give it then: TestOwnersSecretsOnlyWhereNamed in coderd/workspaces",
	"ImportResult.names_owner_oidc_access_token": "builds give it then: TestBuildToken in coderd/signin",
}

// complete has a value in every field.
var complete = &provisionerpb.ImportResult{
	Readme: "# hello", WorkspaceTags: map[string]string{"a": "b"},
	Variables: []*provisionerpb.TemplateVariable{{Name: "v", Description: "d", Type: "string", DefaultValue: "x"}},
	Parameters: []*provisionerpb.Parameter{
		{
			Name: "n", DisplayName: "N", Description: "d", Type: "number", FormType: "input", DefaultValue: "1", Icon: "/icon/x.svg", Order: 1, Styling: "{}",
			Options:    []*provisionerpb.ParameterOption{{Name: "o", Description: "d", Value: "1", Icon: "/icon/x.svg"}},
			Validation: &provisionerpb.ParameterValidation{Regex: "1", Error: "e", Min: ptr[int64](1), Max: ptr[int64](9), Monotonic: "increasing"},
		},
		{Name: "last", Type: "string", Order: 2},
	},
	Presets: []*provisionerpb.Preset{{
		Name: "p", Description: "d", Icon: "/icon/x.svg", Parameters: []*provisionerpb.ParameterValue{{Name: "n", Value: "1"}},
		Prebuilds: &provisionerpb.Prebuilds{
			Instances: 1, TtlSeconds: 60, Timezone: "UTC", Schedule: []*provisionerpb.PrebuildSchedule{{Cron: "* 8-18 * * 1-5", Instances: 2}},
		},
	}},
	ExternalAuth: []*provisionerpb.ExternalAuth{{Id: "github"}},
}

// TestEveryFieldArrives changes each field of what an import finds: users must see the difference. The provisioner's TestReference checks that
// these fields have all attributes of the coder provider's data sources.
func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t, coderdtest.GitHub)
	w.Daemon()
	tom := w.As("tom")
	shown := func(found *provisionerpb.ImportResult) string {
		t.Helper()
		v, err := tom.CreateTemplateVersion(t.Context(), "default", sdk.CreateTemplateVersionRequest{FileID: w.File("tom")})
		if err != nil {
			t.Fatal(err)
		}
		w.Daemon().Next().Finish(&provisionerpb.Result{Of: &provisionerpb.Result_TemplateImport{TemplateImport: found}})
		if v, err = tom.TemplateVersion(t.Context(), v.ID); err != nil || v.Job.Status != sdk.JobSucceeded {
			t.Fatalf("import: %+v, %v", v.Job, err)
		}
		all := []any{v.Readme}
		for _, get := range []func() (any, error){
			func() (any, error) { return tom.TemplateVersionVariables(t.Context(), v.ID) },
			func() (any, error) { return tom.TemplateVersionParameters(t.Context(), v.ID) },
			func() (any, error) { return tom.EvaluateParameters(t.Context(), v.ID, sdk.EvaluateParametersRequest{}) },
			func() (any, error) { return tom.TemplateVersionExternalAuth(t.Context(), v.ID) },
		} {
			found, err := get()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, found)
		}
		presets, err := tom.TemplateVersionPresets(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		for i := range presets {
			presets[i].ID = uuid.Nil
		}
		// TestDesiredPrebuilds and TestReconcilePrebuilds in coderd/policy start from what is stored of prebuilds.
		rows, err := w.DB.ListTemplateVersionPresets(t.Context(), v.ID)
		if err != nil || len(rows) != 1 {
			t.Fatalf("presets: %v, %v", rows, err)
		}
		text, err := json.Marshal(append(all, presets, string(rows[0].Prebuilds)))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := shown(complete)
	tried := map[string]bool{}
	others := map[string]string{"Parameter.styling": `{"disabled": true}`, "Parameter.type": "string", "ParameterValidation.monotonic": "decreasing", "ExternalAuth.id": "gitlab"}
	for field, altered := range coderdtest.Altered(complete, others) {
		tried[field] = true
		if field == "ImportResult.computed_tags" {
			continue // the import fails
		}
		if reason, arrives := elsewhere[field], shown(altered) != before; arrives == (reason != "") {
			t.Errorf("%s: shown %t, and in elsewhere: %q", field, arrives, reason)
		}
	}
	for field := range elsewhere {
		if !tried[field] {
			t.Errorf("%s: the messages do not have it", field)
		}
	}
}
