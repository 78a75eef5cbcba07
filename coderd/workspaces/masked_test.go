package workspaces_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/codermesh/codermesh/v2/coderd/coderdtest"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
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

// TestAutofill checks that a form can begin with the values that the user gave last, without those that are masked, for one build only, another
// user's or of parameters that are gone.
func TestAutofill(t *testing.T) {
	t.Parallel()
	w := coderdtest.New(t)
	parameter := func(name string) *provisionerpb.Parameter {
		return &provisionerpb.Parameter{Name: name, Type: "string", DefaultValue: "d", Mutable: true}
	}
	key, once := parameter("key"), parameter("once")
	key.Styling, once.Ephemeral = `{"mask_input":true}`, true
	template := w.Template("form", &provisionerpb.ImportResult{Parameters: []*provisionerpb.Parameter{key, once, parameter("region"), parameter("size")}})
	other := w.Template("other", &provisionerpb.ImportResult{Parameters: []*provisionerpb.Parameter{parameter("region")}})
	create := func(who, name string, template uuid.UUID, values ...string) {
		t.Helper()
		var given []sdk.ParameterValue
		for i := 0; i < len(values); i += 2 {
			given = append(given, sdk.ParameterValue{Name: values[i], Value: values[i+1]})
		}
		w.Workspace(who, name, template, given...)
		w.Daemon().Next().Finish(coderdtest.Built("s"))
	}
	create("ann", "old", template.ID, "region", "us", "size", "small", "key", "secret", "once", "1")
	create("ann", "new", template.ID, "region", "eu", "size", "large")
	create("ann", "else", other.ID, "region", "elsewhere")
	create("bob", "his", template.ID, "region", "mars")

	ask := func(who, user, template string) (int, string) {
		t.Helper()
		r := httptest.NewRequest("GET", "/api/v2/users/"+user+"/autofill-parameters?template_id="+template, nil)
		r.Header.Set(sdk.SessionHeader, w.Token(who))
		answer := httptest.NewRecorder()
		w.Handler.ServeHTTP(answer, r)
		return answer.Code, strings.TrimSpace(answer.Body.String())
	}
	id := template.ID.String()
	for _, c := range []struct {
		who, user, template string
		status              int
		body                string
	}{
		{"ann", "me", id, 200, `[{"name":"region","value":"eu"},{"name":"size","value":"large"}]`},
		{"olga", "ann", id, 200, `[{"name":"region","value":"eu"},{"name":"size","value":"large"}]`},
		{"olga", "me", id, 200, `[]`},
		{"bob", "me", id, 200, `[{"name":"region","value":"mars"},{"name":"size","value":"d"}]`},
		{"bob", "ann", id, 404, ""},
		{"ann", "me", uuid.NewString(), 404, ""},
		{"ann", "me", "", 400, ""},
		{"ann", "me", "form", 400, ""},
	} {
		status, body := ask(c.who, c.user, c.template)
		if status != c.status || c.body != "" && body != c.body {
			t.Errorf("%s asks for %s, template %q: got %d %s, want %d %s", c.who, c.user, c.template, status, body, c.status, c.body)
		}
	}
	// The values of users are for those who may see their workspaces.
	if status, body := ask("tom", "ann", id); status == 200 {
		t.Errorf("a template admin got %s", body)
	}
}
