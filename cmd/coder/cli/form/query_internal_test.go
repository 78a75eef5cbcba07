package form

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
	"github.com/codermesh/codermesh/v2/internal/tty"
)

var testParams = []sdk.TemplateVersionParameter{
	{Name: "region", Type: "string", Required: true, Mutable: false,
		Options: []sdk.TemplateVersionParamOption{{Name: "Europe", Value: "eu"}, {Name: "Asia", Value: "as"}}},
	{Name: "cpu", Type: "number", DefaultValue: "2", Mutable: true, ValidationMin: new(int64(1)), ValidationMax: new(int64(8)),
		ValidationError: "{value} is not in {min} to {max}"},
	{Name: "reset", Type: "bool", DefaultValue: "false", Ephemeral: true, Mutable: true},
}

// fixed is a form that depends on nothing.
func fixed(definitions []sdk.TemplateVersionParameter) func(map[string]string) ([]parameter, error) {
	return func(map[string]string) ([]parameter, error) {
		var out []parameter
		for _, d := range definitions {
			out = append(out, parameter{TemplateVersionParameter: d})
		}
		return out, nil
	}
}

func TestResolveParameters(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		query Query
		want  map[string]string
		err   string
	}{
		{name: "given and defaults left to the server", query: Query{Values: map[string]string{"region": "eu"}}, want: map[string]string{"region": "eu"}},
		{name: "missing names the flag", query: Query{}, err: "--parameter region="},
		{name: "preset", query: Query{Preset: map[string]string{"region": "as", "cpu": "4"}}, want: map[string]string{"region": "as", "cpu": "4"}},
		{name: "flag beats preset", query: Query{Values: map[string]string{"region": "eu"}, Preset: map[string]string{"region": "as"}}, want: map[string]string{"region": "eu"}},
		{name: "own default", query: Query{Defaults: map[string]string{"region": "as"}}, want: map[string]string{"region": "as"}},
		{name: "bad own default", query: Query{Defaults: map[string]string{"region": "xx"}}, err: "eu, as"},
		{name: "not an option", query: Query{Values: map[string]string{"region": "us"}}, err: "eu, as"},
		{name: "the template's words", query: Query{Values: map[string]string{"region": "eu", "cpu": "9"}}, err: "9 is not in 1 to 8"},
		{name: "not a number", query: Query{Values: map[string]string{"region": "eu", "cpu": "many"}}, err: "not a number"},
		{name: "unknown", query: Query{Values: map[string]string{"regoin": "eu"}}, err: `no parameter "regoin": it has region, cpu, reset`},
		{name: "ephemeral", query: Query{Values: map[string]string{"region": "eu", "reset": "true"}}, want: map[string]string{"region": "eu", "reset": "true"}},
		{name: "unchanged is left out", query: Query{Previous: map[string]string{"region": "eu", "cpu": "2"}}, want: map[string]string{}},
		{name: "immutable", query: Query{Previous: map[string]string{"region": "eu"}, Values: map[string]string{"region": "as"}}, err: "cannot be changed"},
		{name: "immutable and gone", query: Query{Previous: map[string]string{"region": "mars"}, Values: map[string]string{"region": "as"}}, want: map[string]string{"region": "as"}},
		{name: "immutable, same value", query: Query{Previous: map[string]string{"region": "eu"}, Values: map[string]string{"region": "eu"}}, want: map[string]string{"region": "eu"}},
	} {
		tt.query.Form = fixed(testParams)
		values, err := tt.query.Resolve()
		if tt.err != "" {
			if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want an invalid fault with %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, valuesOf(values)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestResolveAsks(t *testing.T) {
	t.Parallel()
	var asked []string
	ask := func(q tty.Question) (string, error) {
		asked = append(asked, q.Text+"="+q.Default)
		if q.Text == "region" {
			return "as", nil
		}
		return q.Default, nil
	}
	values, err := Query{Form: fixed(testParams), Ask: ask}.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"region=", "cpu (between 1 and 8)=2"}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"region": "as", "cpu": "2"}, valuesOf(values)); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}

	// A build of an existing workspace asks for new parameters, and with always for those that can be changed.
	asked = nil
	previous := map[string]string{"region": "eu", "cpu": "4"}
	if _, err := (Query{Form: fixed(testParams), Ask: ask, Previous: previous}).Resolve(); err != nil || len(asked) > 0 {
		t.Errorf("nothing new: asked %q, %v", asked, err)
	}
	if _, err := (Query{Form: fixed(testParams), Ask: ask, Previous: previous, Always: true}).Resolve(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"cpu (between 1 and 8)=4"}, asked); diff != "" {
		t.Errorf("always (-want +got):\n%s", diff)
	}

	// With Ephemeral it also asks for what the previous build had for itself alone, and never takes that again.
	asked = nil
	again := Query{
		Form: fixed(testParams), Ask: ask, Ephemeral: true,
		Previous: map[string]string{"region": "eu", "cpu": "4", "reset": "true"},
	}
	values, err = again.Resolve()
	if diff := cmp.Diff([]string{"reset=false"}, asked); err != nil || diff != "" {
		t.Errorf("ephemeral: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]string{"reset": "false"}, valuesOf(values)); diff != "" {
		t.Errorf("ephemeral (-want +got):\n%s", diff)
	}
	asked, again.Ask = nil, nil
	if values, err := again.Resolve(); err != nil || len(values) > 0 {
		t.Errorf("ephemeral without a terminal: %v, %v", values, err)
	}

	// A new workspace is asked about the values of its preset only with Always.
	preset := Query{Form: fixed(testParams), Ask: ask, Preset: map[string]string{"region": "eu", "cpu": "4"}}
	if _, err := preset.Resolve(); err != nil || len(asked) > 0 {
		t.Errorf("preset: asked %q, %v", asked, err)
	}
	preset.Always = true
	values, err = preset.Resolve()
	if diff := cmp.Diff([]string{"region=eu", "cpu (between 1 and 8)=4"}, asked); err != nil || diff != "" {
		t.Errorf("preset, always: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(map[string]string{"region": "as", "cpu": "4"}, valuesOf(values)); diff != "" {
		t.Errorf("preset, always (-want +got):\n%s", diff)
	}
	asked, preset.UseDefaults = nil, true
	if _, err := preset.Resolve(); err != nil || len(asked) > 0 {
		t.Errorf("preset, always, with its values: asked %q, %v", asked, err)
	}
	failing := errors.New("gone")
	if _, err := (Query{Form: fixed(testParams), Ask: func(tty.Question) (string, error) { return "", failing }}).Resolve(); !errors.Is(err, failing) {
		t.Errorf("got %v, want the question's error", err)
	}
}

// sized is a form in which the sizes depend on the region, and one parameter exists in one region only.
func sized(answers map[string]string) ([]parameter, error) {
	option := func(values ...string) (out []sdk.TemplateVersionParamOption) {
		for _, v := range values {
			out = append(out, sdk.TemplateVersionParamOption{Name: v, Value: v})
		}
		return out
	}
	region := parameter{TemplateVersionParameter: sdk.TemplateVersionParameter{Name: "region", Type: "string", DefaultValue: "eu", Mutable: true, Options: option("eu", "us")}}
	size := parameter{TemplateVersionParameter: sdk.TemplateVersionParameter{Name: "size", Type: "string", DefaultValue: "s", Mutable: true, Options: option("s", "m")}}
	form := []parameter{region, size}
	if answers["region"] == "us" {
		form[1].DefaultValue, form[1].Options = "xl", option("l", "xl")
		form = append(form, parameter{TemplateVersionParameter: sdk.TemplateVersionParameter{Name: "state", Type: "string", Required: true, Mutable: true}})
	}
	for i := range form {
		if value, ok := answers[form[i].Name]; ok && checkParameter(form[i].TemplateVersionParameter, value) != nil {
			form[i].refused = "not in this region"
		}
	}
	return form, nil
}

func TestResolveDependent(t *testing.T) {
	t.Parallel()
	us := map[string]string{"region": "us", "size": "l", "state": "TX"}
	for _, tt := range []struct {
		name  string
		query Query
		says  map[string]string // answers to questions, by text; other questions get their default
		want  map[string]string
		asked []string
		err   string
	}{
		{name: "defaults", want: map[string]string{}},
		{name: "an option of another answer", query: Query{Values: map[string]string{"size": "l"}}, err: `the parameter "size" cannot be "l": it must be one of s, m`},
		{name: "options that follow", query: Query{Values: us}, want: us},
		{name: "a parameter that is not there", query: Query{Values: map[string]string{"state": "TX"}}, err: `no parameter "state": it has region, size`},
		{name: "a parameter that is there then", query: Query{Values: map[string]string{"region": "us"}}, err: "--parameter state="},
		{name: "an own default decides, too", query: Query{Defaults: map[string]string{"region": "us", "state": "NY"}}, want: map[string]string{"region": "us", "state": "NY"}},
		{name: "copied, as far as there is such a parameter", query: Query{Copied: map[string]string{"state": "TX", "size": "m"}}, want: map[string]string{"size": "m"}},
		{name: "copied and changed", query: Query{Copied: us, Values: map[string]string{"state": "CA"}}, want: map[string]string{"region": "us", "size": "l", "state": "CA"}},
		{name: "before", query: Query{Previous: us}, want: map[string]string{}},
		{name: "before, now impossible", query: Query{Previous: us, Values: map[string]string{"region": "eu"}}, err: `the parameter "size" cannot stay "l": it must be one of s, m`},
		{name: "before, now another", query: Query{Previous: us, Values: map[string]string{"region": "eu", "size": "m"}}, want: map[string]string{"region": "eu", "size": "m"}},
		{name: "asked", says: map[string]string{}, asked: []string{"region=eu", "size=s"}, want: map[string]string{"region": "eu", "size": "s"}},
		{name: "asked as answers need it", says: map[string]string{"region": "us", "state": "TX"}, asked: []string{"region=eu", "size=xl", "state="},
			want: map[string]string{"region": "us", "size": "xl", "state": "TX"}},
		{name: "asked again", query: Query{Previous: us, Values: map[string]string{"region": "eu"}}, says: map[string]string{}, asked: []string{"size=s"},
			want: map[string]string{"region": "eu", "size": "s"}},
	} {
		var asked []string
		tt.query.Form = sized
		if tt.says != nil {
			tt.query.Ask = func(q tty.Question) (string, error) {
				asked = append(asked, q.Text+"="+q.Default)
				if answer, ok := tt.says[q.Text]; ok {
					return answer, q.Check(answer)
				}
				return q.Default, q.Check(q.Default)
			}
		}
		values, err := tt.query.Resolve()
		if tt.err != "" {
			if fault.CodeOf(err) != fault.Invalid || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got %v, want an invalid fault with %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if diff := cmp.Diff(tt.want, valuesOf(values)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.asked, asked); diff != "" {
			t.Errorf("%s: asked (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCheckParameter(t *testing.T) {
	t.Parallel()
	list := sdk.TemplateVersionParameter{Type: "list(string)"}
	multi := sdk.TemplateVersionParameter{Type: "list(string)", Options: []sdk.TemplateVersionParamOption{{Value: "a"}, {Value: "b"}}}
	whole := sdk.TemplateVersionParameter{Type: "list(string)", Options: []sdk.TemplateVersionParamOption{{Value: `["a","b"]`}}}
	regex := sdk.TemplateVersionParameter{Type: "string", ValidationRegex: "^[a-z]+$"}
	for _, tt := range []struct {
		def   sdk.TemplateVersionParameter
		value string
		fine  bool
	}{
		{list, `["x","y"]`, true}, {list, `[]`, true}, {list, "x,y", false}, {list, `[1]`, false},
		{multi, `["a"]`, true}, {multi, `["a","c"]`, false}, {whole, `["a","b"]`, true}, {whole, `["a"]`, false},
		{regex, "abc", true}, {regex, "a1", false},
		{sdk.TemplateVersionParameter{Type: "bool"}, "true", true}, {sdk.TemplateVersionParameter{Type: "bool"}, "yes", false},
		{sdk.TemplateVersionParameter{Type: "number", ValidationMin: new(int64(3))}, "2", false},
		{sdk.TemplateVersionParameter{Type: "number", ValidationMax: new(int64(3))}, "2.5", true},
		{sdk.TemplateVersionParameter{Type: "string"}, "", true},
	} {
		if err := checkParameter(tt.def, tt.value); (err == nil) != tt.fine {
			t.Errorf("%+v: value %q: got %v, want fine=%v", tt.def, tt.value, err, tt.fine)
		}
	}
}

// TestQuestions: a parameter's type and options decide how it is asked for.
func TestQuestions(t *testing.T) {
	t.Parallel()
	options := func(values ...string) (out []sdk.TemplateVersionParamOption) {
		for _, v := range values {
			out = append(out, sdk.TemplateVersionParamOption{Name: "the " + v, Value: v})
		}
		return out
	}
	for _, tt := range []struct {
		def     sdk.TemplateVersionParameter
		text    string
		choices int
		many    bool
		initial string
	}{
		{sdk.TemplateVersionParameter{Name: "cpu", Type: "number", ValidationMin: new(int64(1)), ValidationMax: new(int64(8))}, "cpu (between 1 and 8)", 0, false, ""},
		{sdk.TemplateVersionParameter{Name: "cpu", Type: "number", ValidationMin: new(int64(1)), Options: options("1", "2")}, "cpu", 2, false, ""},
		{sdk.TemplateVersionParameter{Name: "tags", Type: "list(string)"}, "tags (with commas between them)", 0, true, "[]"},
		{sdk.TemplateVersionParameter{Name: "editors", Type: "list(string)", Options: options("vim", "emacs")}, "editors", 2, true, "[]"},
		{sdk.TemplateVersionParameter{Name: "sets", Type: "list(string)", Options: options(`["a","b"]`, `[]`)}, "sets", 2, false, ""},
		{sdk.TemplateVersionParameter{Name: "fast", Type: "bool"}, "fast", 2, false, ""},
	} {
		q := parameter{TemplateVersionParameter: tt.def}.question("", false)
		if q.Text != tt.text || len(q.Choices) != tt.choices || q.Many != tt.many || q.Default != tt.initial {
			t.Errorf("%+v: got %+v", tt.def, q)
		}
	}
}

// TestMaskedParameter: a masked value is neither echoed nor quoted, and one that only the owner may read is left to the server.
func TestMaskedParameter(t *testing.T) {
	t.Parallel()
	def := shownAs(sdk.PreviewParameter{
		Name: "key", Type: "string", Mutable: true, Required: true, Styling: []byte(`{"mask_input":true}`),
		Validations: []sdk.ParameterValidation{{Regex: new("^sk-"), Error: "{value} is not a key"}},
	})
	form := func(map[string]string) ([]parameter, error) { return []parameter{def}, nil }
	_, err := Query{Form: form, Values: map[string]string{"key": "hunter2"}}.Resolve()
	if fault.CodeOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("refused value: %v, want a refusal without it", err)
	}
	var asked tty.Question
	values, err := Query{Form: form, Ask: func(q tty.Question) (string, error) {
		asked = q
		return "sk-secret", q.Check("sk-secret")
	}}.Resolve()
	if err != nil || !asked.Secret || valuesOf(values)["key"] != "sk-secret" {
		t.Errorf("asked: %+v, %v, secret %t", values, err, asked.Secret)
	}
	if err := asked.Check("hunter2"); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("refused answer: %v", err)
	}
	known, hidden := Previous([]sdk.BuildParameter{{Name: "key", Masked: true}, {Name: "size", Value: "2"}})
	def.refused = "it is empty"
	values, err = Query{Form: form, Previous: known, Hidden: hidden, Ask: func(tty.Question) (string, error) {
		t.Error("asked for what the owner has set")
		return "", nil
	}}.Resolve()
	if err != nil || len(values) != 0 {
		t.Errorf("another owner's value: %v, %v, want it left to the server", values, err)
	}
}

// valuesOf returns a map of parameter values, never nil.
func valuesOf(values []sdk.ParameterValue) map[string]string {
	m := make(map[string]string, len(values))
	for _, v := range values {
		m[v.Name] = v.Value
	}
	return m
}

// TestUseDefaults: parameters with a default are not asked for, others are.
func TestUseDefaults(t *testing.T) {
	t.Parallel()
	var asked []string
	values, err := Query{
		Form:        fixed([]sdk.TemplateVersionParameter{{Name: "size", Type: "string", DefaultValue: "small", Mutable: true}, {Name: "name", Type: "string", Required: true, Mutable: true}}),
		UseDefaults: true,
		Ask: func(q tty.Question) (string, error) {
			asked = append(asked, q.Text)
			return "mine", nil
		},
	}.Resolve()
	if err != nil || len(asked) != 1 || asked[0] != "name" {
		t.Fatalf("asked %q, %v", asked, err)
	}
	if got := valuesOf(values); len(got) != 1 || got["name"] != "mine" {
		t.Errorf("got %v, want the answer only", got)
	}
}
