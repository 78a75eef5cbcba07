package workspaces_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/coderd/coderdtest"
	"github.com/codermesh/codermesh/internal/fault"
	"github.com/codermesh/codermesh/internal/sdk"
	"github.com/codermesh/codermesh/provisionerd/provisionerpb"
)

// TestMaskedParameters checks that only the workspace's owner sees masked values, and they survive builds that others begin.
func TestMaskedParameters(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	template := w.Template("secret", &provisionerpb.ImportResult{Parameters: []*provisionerpb.Parameter{
		{Name: "key", Type: "string", DefaultValue: "none", Mutable: true, Styling: `{"mask_input":true}`,
			Validation: &provisionerpb.ParameterValidation{Regex: "^sk-", Error: "{value} is not a key"}},
		{Name: "once", Type: "string", DefaultValue: "a", Styling: `{"mask_input":true}`},
		{Name: "plain", Type: "string", DefaultValue: "p", Mutable: true, Styling: `{"mask_input":false}`},
	}})
	key := sdk.ParameterValue{Name: "key", Value: "sk-secret"}
	ws := w.Workspace("ann", "dev", template.ID, key)
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	want := func(who string, build sdk.WorkspaceBuild, want ...sdk.BuildParameter) {
		t.Helper()
		got, err := w.As(who).BuildParameters(t.Context(), build.ID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("as %s: %v (-want +got):\n%s", who, err, diff)
		}
	}
	plain := sdk.BuildParameter{Name: "plain", Value: "p"}
	want("ann", ws.LatestBuild, sdk.BuildParameter{Name: "key", Value: "sk-secret", Masked: true}, sdk.BuildParameter{Name: "once", Value: "a", Masked: true}, plain)
	want("olga", ws.LatestBuild, sdk.BuildParameter{Name: "key", Masked: true}, sdk.BuildParameter{Name: "once", Masked: true}, plain)

	// A search does not tell others the value either.
	for _, c := range []struct {
		who, q string
		count  int
	}{
		{"ann", `param:key=sk-secret`, 1}, {"ann", `param:key=sk-other`, 0}, {"olga", `param:key=sk-secret`, 0}, {"olga", `param:once=a`, 0},
		{"olga", `param:key`, 1}, {"ann", `param:plain=p param:key=sk-secret`, 1}, {"ann", `param:plain=q param:key=sk-secret`, 0}, {"ann", `param:none`, 0},
	} {
		if got, err := w.As(c.who).Workspaces(t.Context(), sdk.WorkspacesQuery{Q: c.q}); err != nil || got.Count != c.count || len(got.Workspaces) != c.count {
			t.Errorf("as %s, %s: got %d workspaces, %v, want %d", c.who, c.q, got.Count, err, c.count)
		}
	}

	if _, err := w.As("olga").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{RichParameterValues: []sdk.ParameterValue{{Name: "plain", Value: "q"}}}); err != nil {
		t.Fatal(err)
	}
	w.Daemon().Next().Finish(coderdtest.Built("s"))
	for _, p := range w.Daemon().Next().GetWorkspaceBuild().GetParameters() {
		if p.GetName() == "key" && p.GetValue() != "sk-secret" {
			t.Errorf("the owner's key became %q", p.GetValue())
		}
	}

	// Refusals do not quote the values.
	for _, v := range []sdk.ParameterValue{{Name: "key", Value: "hunter2"}, {Name: "once", Value: "b"}} {
		_, err := w.As("ann").Restart(t.Context(), ws.ID, sdk.CreateBuildRequest{RichParameterValues: []sdk.ParameterValue{v}})
		if f := fault.As(err); f == nil || strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: %v, want a refusal without the value", v.Name, err)
		} else {
			for _, field := range f.Fields {
				if strings.Contains(field.Detail, "hunter2") || strings.Contains(field.Detail, `"a"`) {
					t.Errorf("%s: %q quotes the value", v.Name, field.Detail)
				}
			}
		}
	}
}
