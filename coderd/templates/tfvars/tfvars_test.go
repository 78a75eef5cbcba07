package tfvars_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/zclconf/go-cty/cty"

	"github.com/codermesh/codermesh/v2/coderd/templates/tfvars"
	"github.com/codermesh/codermesh/v2/internal/fault"
	"github.com/codermesh/codermesh/v2/internal/syntax"
)

func archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg})
		if _, werr := io.WriteString(w, text); errors.Join(err, werr) != nil {
			t.Fatal(err, werr)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  map[string]string
	}{
		"none": {map[string]string{"main.tf": `variable "a" {}`, "dev.tfvars": `a = "not read"`, "sub/terraform.tfvars": `a = "a module's"`}, nil},
		"types": {
			map[string]string{"terraform.tfvars": "s = \"text\"\nn = 1.50\nb = true\nl = [\"x\", 2]\no = { k = \"v\" }\n"},
			map[string]string{"s": "text", "n": "1.5", "b": "true", "l": `["x",2]`, "o": `{"k":"v"}`},
		},
		"heredoc": {map[string]string{"terraform.tfvars": "s = <<EOT\none\ntwo\nEOT\n"}, map[string]string{"s": "one\ntwo\n"}},
		"JSON": {
			map[string]string{"terraform.tfvars.json": `{"s": "a ${literal}", "n": 7, "l": ["x"]}`},
			map[string]string{"s": "a ${literal}", "n": "7", "l": `["x"]`},
		},
		"order": {
			map[string]string{
				"terraform.tfvars": "a = 1\nb = 1\nc = 1\nd = 1\n", "./terraform.tfvars.json": `{"b": 2, "c": 2, "d": 2}`,
				"a.auto.tfvars": "c = 3\nd = 3\n", "b.auto.tfvars.json": `{"d": 4}`,
			},
			map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"},
		},
		"withdrawn": {map[string]string{"terraform.tfvars": "a = 1\nb = 1\n", "x.auto.tfvars": "a = null\n"}, map[string]string{"b": "1"}},
	} {
		got, err := tfvars.Parse(archive(t, c.files))
		if c.want == nil {
			c.want = map[string]string{}
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	if got, err := tfvars.Parse([]byte("not a tar")); err != nil || len(got) != 0 {
		t.Errorf("not a tar: %v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a = 1\nb = = 2\n":            "terraform.tfvars:2: ",
		"a = 1\n\nb = upper(\"x\")\n": "terraform.tfvars:3: the value of b must be a literal",
		"a = var.b\n":                 "terraform.tfvars:1: the value of a must be a literal",
		"variable \"a\" {}\n":         "terraform.tfvars:1: ",
		"a = \"\\u0000\"\n":           "terraform.tfvars:1: the value of a cannot be used: it holds a NUL",
	} {
		if _, err := tfvars.Parse(archive(t, map[string]string{"terraform.tfvars": text})); fault.CodeOf(err) != fault.Invalid || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestListsStayLiteral: the text of a list is read again as an expression, in which "${" must not begin a sequence.
func TestListsStayLiteral(t *testing.T) {
	t.Parallel()
	values, err := tfvars.Parse(archive(t, map[string]string{"terraform.tfvars": `l = ["$${a}", "%%{b}", "\\$${c}", "$$$${d}"]`}))
	if err != nil {
		t.Fatal(err)
	}
	var parser syntax.Parser
	expr, diags := parser.Expression("l", []byte(values["l"]))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	got, ok := syntax.Literal(expr)
	want := cty.TupleVal([]cty.Value{cty.StringVal("${a}"), cty.StringVal("%{b}"), cty.StringVal(`\${c}`), cty.StringVal("$$${d}")})
	if !ok || !got.RawEquals(want) {
		t.Errorf("%s is %#v, want %#v", values["l"], got, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(archive(f, map[string]string{"terraform.tfvars": "a = [1, \"${b}\"]\n", "b.auto.tfvars.json": `{"c": null}`}))
	f.Fuzz(func(t *testing.T, archive []byte) {
		values, err := tfvars.Parse(archive)
		if err != nil && fault.CodeOf(err) != fault.Invalid {
			t.Errorf("fault %v", err)
		}
		for name, value := range values {
			if name == "" || strings.Contains(name+value, "\x00") || !utf8.ValidString(name+value) {
				t.Errorf("%q = %q", name, value)
			}
		}
	})
}
