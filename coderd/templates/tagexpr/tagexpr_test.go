package tagexpr_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/coderd/templates/tagexpr"
)

// archive returns a template with files by name.
func archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

const parameters = `
data "coder_parameter" "region" {
  name    = "Region"
  default = "eu"
}
data "coder_parameter" "size" {
  name = "${local.prefix}size"
}
data "coder_parameter" "many" {
  count = 2
  name  = "many"
}
locals { prefix = "my-" }
`

func TestTags(t *testing.T) {
	t.Parallel()
	values := map[string]string{"Region": "EU-West", "my-size": "4", "many": "x"}
	variables := map[string]tagexpr.Variable{
		"environment": {Type: "string", Value: "on_prem"}, "count": {Type: "number", Value: "3"}, "strict": {Type: "bool", Value: "true"}, "list": {Type: "list(string)", Value: "[]"},
	}
	for name, c := range map[string]struct {
		source string
		want   map[string]string // nil: the tags are the same for every build
		err    string            // from Parse or Tags
	}{
		"no tags":           {"", nil, ""},
		"constant":          {`data "coder_workspace_tags" "x" { tags = { a = "b", c = var.environment, d = local.prefix } }`, nil, ""},
		"by a parameter":    {`data "coder_workspace_tags" "x" { tags = { region = data.coder_parameter.region.value, "fixed" = "yes" } }`, map[string]string{"region": "EU-West", "fixed": "yes"}, ""},
		"in a template":     {`data "coder_workspace_tags" "x" { tags = { (local.prefix) = "${lower(data.coder_parameter.region.value)}/${var.count}" } }`, map[string]string{"my-": "eu-west/3"}, ""},
		"by a local":        {"locals {\n  r = data.coder_parameter.region.value == \"EU-West\" ? local.eu : \"us\"\n  eu = \"europe\"\n}\ndata \"coder_workspace_tags\" \"x\" { tags = { region = local.r } }", map[string]string{"region": "europe"}, ""},
		"by a map":          {`data "coder_workspace_tags" "x" { tags = { pool = lookup({ "4" = "big" }, data.coder_parameter.size.value, "small") } }`, map[string]string{"pool": "big"}, ""},
		"by an index":       {`data "coder_workspace_tags" "x" { tags = { pool = { "4" = "big" }[data.coder_parameter.size.value] } }`, map[string]string{"pool": "big"}, ""},
		"merged":            {"locals { base = { a = \"b\" } }\ndata \"coder_workspace_tags\" \"x\" { tags = merge(local.base, { r = data.coder_parameter.region.value }) }", map[string]string{"a": "b", "r": "EU-West"}, ""},
		"two blocks":        {"data \"coder_workspace_tags\" \"x\" { tags = { r = data.coder_parameter.region.value } }\ndata \"coder_workspace_tags\" \"y\" { tags = { s = 1 } }", map[string]string{"r": "EU-West", "s": "1"}, ""},
		"a number":          {`data "coder_workspace_tags" "x" { tags = { cpus = tonumber(data.coder_parameter.size.value) * 2 } }`, map[string]string{"cpus": "8"}, ""},
		"a loop":            {`data "coder_workspace_tags" "x" { tags = { for k in [data.coder_parameter.region.value] : k => k } }`, nil, "main.tf:"},
		"a function":        {`data "coder_workspace_tags" "x" { tags = { a = file(data.coder_parameter.region.value) } }`, nil, "function file"},
		"format":            {`data "coder_workspace_tags" "x" { tags = { a = format("%1000000000s", data.coder_parameter.region.value) } }`, nil, "function format"},
		"another source":    {`data "coder_workspace_tags" "x" { tags = { a = data.coder_workspace.me.name } }`, nil, "data.coder_workspace.me"},
		"a resource":        {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.region.value, b = null_resource.x.id } }`, nil, "null_resource"},
		"no such parameter": {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.nope.value } }`, nil, "data.coder_parameter.nope"},
		"counted parameter": {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.many[0].value } }`, nil, "count or for_each"},
		"counted tags":      {"data \"coder_workspace_tags\" \"x\" {\n  count = 1\n  tags = { a = data.coder_parameter.region.value }\n}", nil, "count and for_each"},
		"no such local":     {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.region.value, b = local.nope } }`, nil, "local.nope"},
		"a cycle":           {"locals {\n  a = local.b\n  b = local.a\n}\ndata \"coder_workspace_tags\" \"x\" { tags = { a = data.coder_parameter.region.value, b = local.a } }", nil, "depends on itself"},
		"a list":            {`data "coder_workspace_tags" "x" { tags = { a = [data.coder_parameter.region.value] } }`, nil, "no map of text"},
		"null":              {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.region.value, b = null } }`, nil, "has no value"},
		"a complex var":     {`data "coder_workspace_tags" "x" { tags = { a = data.coder_parameter.region.value, b = var.list } }`, nil, "list"},
		"broken":            {`data "coder_workspace_tags" "x" { tags = `, nil, "main.tf"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": c.source, "parameters.tf": parameters, "module/main.tf": "nonsense {"}))
			var got map[string]string
			if err == nil && p != nil {
				p = stored(t, p)
				got, err = p.Tags(values, variables)
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v and error %v, want one with %q", got, err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("error %v, tags (-want +got):\n%s", err, diff)
			}
		})
	}
}

// stored returns a program after a round trip through its stored form.
func stored(t *testing.T, p *tagexpr.Program) *tagexpr.Program {
	t.Helper()
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back tagexpr.Program
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	return &back
}

// TestBomb checks that text that doubles with every local does not exhaust memory.
func TestBomb(t *testing.T) {
	t.Parallel()
	var source strings.Builder
	source.WriteString("locals {\n  l0 = data.coder_parameter.region.value\n")
	for i := range 60 {
		fmt.Fprintf(&source, "  l%d = \"${local.l%d}${local.l%d}\"\n", i+1, i, i)
	}
	source.WriteString("}\ndata \"coder_workspace_tags\" \"x\" { tags = { a = local.l60 } }\n")
	p, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": source.String(), "parameters.tf": parameters}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Tags(map[string]string{"Region": "0123456789"}, nil); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("got %v", err)
	}
}

// TestHugeNumbers checks that numbers that take a gigabyte to write out, given as answers, are refused wherever text becomes
// a number.
func TestHugeNumbers(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		`tonumber(data.coder_parameter.region.value)`, `data.coder_parameter.region.value * 1`, `-data.coder_parameter.region.value`,
		`"${data.coder_parameter.region.value + 1}"`,
	} {
		p, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": "data \"coder_workspace_tags\" \"x\" {\n  tags = { a = " + expression + " }\n}\n", "parameters.tf": parameters}))
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"1e99999999", "-1e99999999", "1e-99999999"} {
			if _, err := p.Tags(map[string]string{"Region": value}, nil); err == nil || !strings.Contains(err.Error(), "too large or too small") {
				t.Errorf("%s with %s: got %v", expression, value, err)
			}
		}
		if tags, err := p.Tags(map[string]string{"Region": "1e3"}, nil); err != nil || len(tags["a"]) > 10 {
			t.Errorf("%s: got %v, %v", expression, tags, err)
		}
	}
	if _, err := (&tagexpr.Program{Blocks: []string{"{ a = var.n }"}}).Tags(nil, map[string]tagexpr.Variable{"n": {Type: "number", Value: "1e99999999"}}); err == nil {
		t.Error("a huge variable is accepted")
	}
}

// TestDeep parses templates that must not reach the parser.
func TestDeep(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"brackets": "locals {\n  a = " + strings.Repeat("(", 100_000) + "\n}\n",
		"sum":      "locals {\n  a = 1" + strings.Repeat("+1", 90_000) + "\n}\n",
	} {
		if _, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": text})); err == nil || !strings.Contains(err.Error(), "main.tf:2") || !strings.Contains(err.Error(), "levels deep") {
			t.Errorf("%s: got %.200v", name, err)
		}
	}
	if _, err := (&tagexpr.Program{Blocks: []string{strings.Repeat("(", 100_000)}}).Tags(nil, nil); err == nil || !strings.Contains(err.Error(), "levels deep") {
		t.Errorf("a stored program: got %.200v", err)
	}
	// A chain of locals, each of which reads the next, is as deep as it is long.
	var chain strings.Builder
	chain.WriteString("data \"coder_workspace_tags\" \"x\" {\n  tags = { a = local.l0 }\n}\nlocals {\n")
	for n := range 20_000 {
		fmt.Fprintf(&chain, "  l%d = local.l%d\n", n, n+1)
	}
	chain.WriteString("  l20000 = data.coder_parameter.region.value\n}\n")
	if _, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": chain.String(), "parameters.tf": parameters})); err == nil || !strings.Contains(err.Error(), "KiB") {
		t.Errorf("a chain of locals: got %.200v", err)
	}
}

func FuzzTags(f *testing.F) {
	f.Add(`{ a = data.coder_parameter.region.value }`, "eu")
	f.Add(`merge({ a = "${local.prefix}x" }, { (data.coder_parameter.size.value) = true ? 1 : 2 })`, "4")
	f.Add(`{ a = substr(data.coder_parameter.region.value, -1, 99) }`, "")
	f.Fuzz(func(t *testing.T, expression, value string) {
		p, err := tagexpr.Parse(archive(t, map[string]string{"main.tf": "data \"coder_workspace_tags\" \"x\" {\n  tags = " + expression + "\n}\n", "parameters.tf": parameters}))
		if err != nil || p == nil {
			return
		}
		tags, err := p.Tags(map[string]string{"Region": value, "my-size": value}, nil)
		if err != nil {
			return
		}
		for key, tag := range tags {
			if len(key)+len(tag) > 8<<10 {
				t.Errorf("a tag of %d bytes", len(key)+len(tag))
			}
		}
	})
}

// TestWhateverReads checks that tags depend on a build unless they consist of constants, variables and locals.
func TestWhateverReads(t *testing.T) {
	t.Parallel()
	const tags = `data "coder_workspace_tags" "x" { tags = { a = %s } }`
	for name, c := range map[string]struct {
		files map[string]string
		err   string // "": the same for every build
	}{
		"a resource":       {map[string]string{"main.tf": fmt.Sprintf(tags, "terraform_data.r.input")}, "main.tf:1: terraform_data is not known by then"},
		"a module":         {map[string]string{"main.tf": fmt.Sprintf(tags, "module.m.zone")}, "main.tf:1: module is not known by then"},
		"counted":          {map[string]string{"main.tf": "data \"coder_workspace_tags\" \"x\" {\n  count = data.coder_parameter.region.value == \"eu\" ? 1 : 0\n  tags = { a = 1 }\n}\n"}, "count and for_each"},
		"counted by a var": {map[string]string{"main.tf": "data \"coder_workspace_tags\" \"x\" {\n  count = var.n\n  tags = { a = count.index }\n}\n"}, ""},
		"a JSON constant":  {map[string]string{"main.tf": fmt.Sprintf(tags, "local.j"), "l.tf.json": `{"locals": {"j": "x${var.v}"}}`}, ""},
		"a JSON local":     {map[string]string{"main.tf": fmt.Sprintf(tags, "local.j"), "l.tf.json": `{"locals": {"j": "${data.coder_parameter.region.value}"}}`}, "main.tf:1: there is no local.j"},
		"an override": {map[string]string{"main.tf": fmt.Sprintf(tags, "data.coder_parameter.region.value"), "x_override.tf": "\nlocals { prefix = 1 }"},
			"x_override.tf:2: a file that overrides"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.files["parameters.tf"] = parameters
			p, err := tagexpr.Parse(archive(t, c.files))
			if c.err == "" && (p != nil || err != nil) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v and %v, want an error with %q", p, err, c.err)
			}
		})
	}
}
