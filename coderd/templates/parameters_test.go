package templates_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/templates"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/sdk"
)

func options(values ...string) []sdk.TemplateVersionParamOption {
	var out []sdk.TemplateVersionParamOption
	for _, v := range values {
		out = append(out, sdk.TemplateVersionParamOption{Name: v, Value: v})
	}
	return out
}

func ptr[T any](v T) *T { return &v }

func TestCheck(t *testing.T) {
	t.Parallel()
	number := sdk.TemplateVersionParameter{Type: "number", ValidationMin: ptr[int64](1), ValidationMax: ptr[int64](8)}
	growing := sdk.TemplateVersionParameter{Type: "number", ValidationMonotonic: "increasing"}
	shrinking := sdk.TemplateVersionParameter{Type: "number", ValidationMonotonic: "decreasing"}
	list := sdk.TemplateVersionParameter{Type: "list(string)"}
	multi := sdk.TemplateVersionParameter{Type: "list(string)", FormType: "multi-select", Options: options("go", "node")}
	radio := sdk.TemplateVersionParameter{Type: "list(string)", FormType: "radio", Options: options(`["a","b"]`, `["c"]`)}
	regex := sdk.TemplateVersionParameter{Type: "string", ValidationRegex: "^[a-z]+$"}
	worded := sdk.TemplateVersionParameter{Type: "number", ValidationMin: ptr[int64](1), ValidationMax: ptr[int64](8), ValidationError: "{value} is not in {min}..{max}"}
	for _, tt := range []struct {
		name            string
		d               sdk.TemplateVersionParameter
		value, previous string
		want            string // part of the problem; "" for none
	}{
		{"string", sdk.TemplateVersionParameter{Type: "string"}, "anything", "", ""},
		{"empty string", sdk.TemplateVersionParameter{Type: "string"}, "", "", ""},
		{"string too long", sdk.TemplateVersionParameter{Type: "string"}, strings.Repeat("x", 64<<10+1), "", "longer"},
		{"string with NUL", sdk.TemplateVersionParameter{Type: "string"}, "a\x00b", "", "NUL"},
		{"regex fits", regex, "abc", "", ""},
		{"regex does not fit", regex, "ABC", "", "must match ^[a-z]+$"},
		{"regex is broken", sdk.TemplateVersionParameter{Type: "string", ValidationRegex: "("}, "x", "", "not valid"},
		{"option", sdk.TemplateVersionParameter{Type: "string", Options: options("a", "b")}, "b", "", ""},
		{"no option", sdk.TemplateVersionParameter{Type: "string", Options: options("a", "b")}, "c", "", `must be one of "a", "b"`},
		{"number", number, "4", "", ""},
		{"number at min", number, "1", "", ""},
		{"number at max", number, "8", "", ""},
		{"number below", number, "0", "", "at least 1"},
		{"number above", number, "9", "", "at most 8"},
		{"fraction above", number, "8.5", "", "at most 8"},
		{"no number", number, "four", "", "must be a number"},
		{"empty number", number, "", "", "must be a number"},
		{"hexadecimal", number, "0x4", "", "must be a number"},
		{"not a number", number, "NaN", "", "must be a number"},
		{"too large a number", sdk.TemplateVersionParameter{Type: "number"}, "1e999", "", "must be a number"},
		{"number no option", sdk.TemplateVersionParameter{Type: "number", Options: options("1", "2")}, "3", "", "must be one of"},
		{"template's words", worded, "9", "", "9 is not in 1..8"},
		{"template's words about a bound that there is not", sdk.TemplateVersionParameter{Type: "number", ValidationMax: ptr[int64](8), ValidationError: "{value} is not in {min}..{max}"}, "9", "", "must be at most 8"},
		{"template's words are about bounds", sdk.TemplateVersionParameter{
			Type: "number", ValidationMin: ptr[int64](1), ValidationMax: ptr[int64](8), ValidationMonotonic: "increasing", ValidationError: "{value} is not in {min}..{max}",
		}, "3", "4", "can only grow: it is 4"},
		{"grows", growing, "11", "10", ""},
		{"stays", growing, "10", "10", ""},
		{"does not grow", growing, "9", "10", "can only grow"},
		{"first of growing", growing, "1", "", ""},
		{"shrinks", shrinking, "9", "10", ""},
		{"does not shrink", shrinking, "11", "10", "can only shrink"},
		{"true", sdk.TemplateVersionParameter{Type: "bool"}, "true", "", ""},
		{"false", sdk.TemplateVersionParameter{Type: "bool"}, "false", "", ""},
		{"no bool", sdk.TemplateVersionParameter{Type: "bool"}, "yes", "", "true or false"},
		{"list", list, `["a","b"]`, "", ""},
		{"empty list", list, `[]`, "", ""},
		{"null list", list, `null`, "", "JSON list"},
		{"list of numbers", list, `[1]`, "", "JSON list"},
		{"no list", list, `a,b`, "", "JSON list"},
		{"choices", multi, `["go","node"]`, "", ""},
		{"one choice wrong", multi, `["go","rust"]`, "", "must be one of"},
		{"whole list", radio, `["c"]`, "", ""},
		{"not a whole list", radio, `["a"]`, "", "must be one of"},
		{"unknown type", sdk.TemplateVersionParameter{Type: "map"}, "x", "", "unknown type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := templates.Check(tt.d, tt.value, tt.previous)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("Check(%q, before %q) = %q, want %q", tt.value, tt.previous, got, tt.want)
			}
		})
	}
}

type values = []sdk.ParameterValue

// resolutions are values from several places for the parameters of TestResolve, and which of them a build gets or which fields are refused.
var resolutions = []struct {
	name    string
	from    templates.Values
	want    values
	refused []string
}{
	{
		name: "defaults",
		from: templates.Values{Given: values{{Name: "image", Value: "debian"}}},
		want: values{{Name: "cpus", Value: "2"}, {Name: "region", Value: "eu"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "debian"}},
	},
	{name: "required is missing", refused: []string{"image"}},
	{
		name:    "everything is wrong",
		from:    templates.Values{Given: values{{Name: "cpus", Value: "9"}, {Name: "region", Value: "mars"}, {Name: "color", Value: "red"}}},
		refused: []string{"color", "cpus", "region", "image"},
	},
	{
		name:    "given twice",
		from:    templates.Values{Given: values{{Name: "image", Value: "a"}, {Name: "image", Value: "b"}}},
		refused: []string{"image"},
	},
	{
		name: "given, then preset, then previous, then default",
		from: templates.Values{
			Given:    values{{Name: "image", Value: "given"}},
			Preset:   values{{Name: "image", Value: "preset"}, {Name: "cpus", Value: "4"}},
			Previous: values{{Name: "image", Value: "previous"}, {Name: "cpus", Value: "3"}, {Name: "region", Value: "us"}},
		},
		want: values{{Name: "cpus", Value: "4"}, {Name: "region", Value: "us"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "given"}},
	},
	{
		name:    "immutable changes",
		from:    templates.Values{Given: values{{Name: "region", Value: "us"}}, Previous: values{{Name: "region", Value: "eu"}, {Name: "image", Value: "x"}}},
		refused: []string{"region"},
	},
	{
		name: "immutable given again",
		from: templates.Values{Given: values{{Name: "region", Value: "us"}}, Previous: values{{Name: "region", Value: "us"}, {Name: "image", Value: "x"}}},
		want: values{{Name: "cpus", Value: "2"}, {Name: "region", Value: "us"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "x"}},
	},
	{
		name: "immutable is new",
		from: templates.Values{Given: values{{Name: "region", Value: "us"}}, Previous: values{{Name: "image", Value: "x"}}},
		want: values{{Name: "cpus", Value: "2"}, {Name: "region", Value: "us"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "x"}},
	},
	{
		name: "immutable, no longer possible, is replaced",
		from: templates.Values{Given: values{{Name: "region", Value: "us"}}, Previous: values{{Name: "region", Value: "mars"}, {Name: "image", Value: "x"}}},
		want: values{{Name: "cpus", Value: "2"}, {Name: "region", Value: "us"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "x"}},
	},
	{
		name:    "immutable, no longer possible, is replaced by something possible",
		from:    templates.Values{Given: values{{Name: "region", Value: "pluto"}}, Previous: values{{Name: "region", Value: "mars"}, {Name: "image", Value: "x"}}},
		refused: []string{"region"},
	},
	{
		name:    "immutable, no longer possible, stays without a choice",
		from:    templates.Values{Previous: values{{Name: "region", Value: "mars"}, {Name: "image", Value: "x"}}},
		refused: []string{"region"},
	},
	{
		name: "ephemeral is not carried over",
		from: templates.Values{Previous: values{{Name: "branch", Value: "feature"}, {Name: "image", Value: "x"}}},
		want: values{{Name: "cpus", Value: "2"}, {Name: "region", Value: "eu"}, {Name: "branch", Value: "main"}, {Name: "image", Value: "x"}},
	},
	{
		name:    "previous does not fit any more",
		from:    templates.Values{Previous: values{{Name: "cpus", Value: "16"}, {Name: "image", Value: "x"}}},
		refused: []string{"cpus"},
	},
	{
		name: "ending carries on whatever there is",
		from: templates.Values{Ending: true, Previous: values{{Name: "cpus", Value: "16"}, {Name: "region", Value: "mars"}}},
		want: values{{Name: "cpus", Value: "16"}, {Name: "region", Value: "mars"}, {Name: "branch", Value: "main"}, {Name: "image"}},
	},
	{
		name:    "ending checks what is given",
		from:    templates.Values{Ending: true, Given: values{{Name: "cpus", Value: "99"}}},
		refused: []string{"cpus"},
	},
}

func TestResolve(t *testing.T) {
	t.Parallel()
	parameters := []sdk.TemplateVersionParameter{
		{Name: "cpus", Type: "number", Mutable: true, DefaultValue: "2", ValidationMax: ptr[int64](8)},
		{Name: "region", Type: "string", DefaultValue: "eu", Options: options("eu", "us")},
		{Name: "branch", Type: "string", Mutable: true, Ephemeral: true, DefaultValue: "main"},
		{Name: "image", Type: "string", Mutable: true, Required: true},
	}
	var definitions []templates.Definition
	for _, p := range parameters {
		definitions = append(definitions, templates.Definition{TemplateVersionParameter: p})
	}
	for _, tt := range resolutions {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := templates.Resolve(definitions, tt.from)
			var refused []string
			if f := fault.As(err); f != nil {
				if f.Code != fault.Invalid {
					t.Errorf("code = %s, want %s", f.Code, fault.Invalid)
				}
				for _, field := range f.Fields {
					refused = append(refused, field.Field)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.refused, refused); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
		})
	}
}

// TestResolveDynamic checks that Resolve leaves to Terraform what only Terraform can decide.
func TestResolveDynamic(t *testing.T) {
	t.Parallel()
	dynamic := func(p sdk.TemplateVersionParameter, conditional bool) templates.Definition {
		p.Dynamic = true
		return templates.Definition{TemplateVersionParameter: p, Conditional: conditional}
	}
	definitions := []templates.Definition{
		{TemplateVersionParameter: sdk.TemplateVersionParameter{Name: "region", Type: "string", DefaultValue: "eu", Options: options("eu", "us")}},
		dynamic(sdk.TemplateVersionParameter{Name: "zone", Type: "string", DefaultValue: "eu-1", Options: options("eu-1", "eu-2")}, false),
		dynamic(sdk.TemplateVersionParameter{Name: "cpus", Type: "number", DefaultValue: "1", ValidationMax: ptr[int64](2)}, false),
		dynamic(sdk.TemplateVersionParameter{Name: "gpu"}, true),
		dynamic(sdk.TemplateVersionParameter{Name: "*"}, true),
	}
	type values = []sdk.ParameterValue
	for name, tt := range map[string]struct {
		from templates.Values
		want values
		fine bool
	}{
		"defaults": {templates.Values{}, values{{Name: "region", Value: "eu"}}, true},
		"other options than at the import": {
			templates.Values{Given: values{{Name: "region", Value: "us"}, {Name: "zone", Value: "us-1"}, {Name: "cpus", Value: "64"}, {Name: "gpu", Value: "true"}, {Name: "disk-2", Value: "x"}}},
			values{{Name: "region", Value: "us"}, {Name: "zone", Value: "us-1"}, {Name: "cpus", Value: "64"}, {Name: "gpu", Value: "true"}, {Name: "disk-2", Value: "x"}}, true,
		},
		"as before": {templates.Values{Previous: values{{Name: "gpu", Value: "true"}, {Name: "zone", Value: "us-1"}}}, values{{Name: "region", Value: "eu"}, {Name: "zone", Value: "us-1"}, {Name: "gpu", Value: "true"}}, true},
		"computed before, where only Terraform knows the type": {
			templates.Values{Previous: values{{Name: "cpus", Value: "0x10"}}, Computed: map[string]bool{"cpus": true}}, values{{Name: "region", Value: "eu"}, {Name: "cpus", Value: "0x10"}}, true,
		},
		"immutable": {templates.Values{Previous: values{{Name: "zone", Value: "eu-1"}}, Given: values{{Name: "zone", Value: "eu-2"}}}, nil, false},
		"immutable and gone": {
			templates.Values{Previous: values{{Name: "zone", Value: "eu-1"}}, Given: values{{Name: "zone", Value: "eu-2"}}, Gone: map[string]bool{"zone": true}}, values{{Name: "region", Value: "eu"}, {Name: "zone", Value: "eu-2"}}, true,
		},
		"a wrong type":  {templates.Values{Given: values{{Name: "cpus", Value: "many"}}}, nil, false},
		"a fixed one's": {templates.Values{Given: values{{Name: "region", Value: "mars"}}}, nil, false},
		"twice":         {templates.Values{Given: values{{Name: "disk", Value: "a"}, {Name: "disk", Value: "b"}}}, nil, false},
	} {
		got, err := templates.Resolve(definitions, tt.from)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != tt.fine {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if _, err := templates.Resolve(definitions[:4], templates.Values{Given: values{{Name: "disk", Value: "a"}}}); fault.CodeOf(err) != fault.Invalid {
		t.Errorf("a name that no parameter can have: %v", err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, typ := range []string{"string", "number", "bool", "list(string)"} {
		f.Add(typ, "1", "2", "^a$")
	}
	f.Fuzz(func(t *testing.T, typ, value, previous, pattern string) {
		d := sdk.TemplateVersionParameter{Type: typ, ValidationRegex: pattern, ValidationMonotonic: "increasing", Options: options("1", "true", "[]")}
		if templates.Check(d, value, previous) == "" && strings.ContainsRune(value, 0) {
			t.Errorf("accepted a NUL: %q", value)
		}
	})
}
