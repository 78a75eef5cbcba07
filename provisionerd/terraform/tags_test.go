package terraform_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// tagKinds maps what a tag can be to the expression, and to its value, "" if it is not known before a build.
var tagKinds = map[string]struct{ expr, value, in string }{
	"constant":  {`"fixed"`, "fixed", "fixed"},
	"variable":  {"var.v", "of a variable", "of a variable"},
	"local":     {"local.l", "of a local", "of a local"},
	"parameter": {"data.coder_parameter.p.value", "of a parameter", "var.computed"},
	"resource":  {"terraform_data.r.output", "", "var.unknown"},
	"attribute": {"terraform_data.r.input", "", "var.pending"},
	"function":  {"timestamp()", "", "timestamp()"},
}

const tagWorld = `
variable "v" {
  default = "of a variable"
}
locals {
  l = "of a local"
}
data "coder_parameter" "p" {
  name    = "p"
  default = "of a parameter"
}
resource "terraform_data" "r" {
  input = "x"
}
module "m" {
  source   = "./m"
  computed = data.coder_parameter.p.value
  unknown  = terraform_data.r.output
  pending  = terraform_data.r.input
}
`

const tagModule = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
variable "computed" {}
variable "unknown" {}
variable "pending" {}
`

// declaration is a coder_workspace_tags of a made-up template.
type declaration struct {
	where  string            // "tf", "json" or "module"
	merged bool              // with merge()
	kinds  map[string]string // of the tags, by key
}

// write adds the declaration to a template's files.
func (d declaration) write(name string, content map[string]string) {
	var entries, objects []string
	for _, key := range slices.Sorted(maps.Keys(d.kinds)) {
		expr := tagKinds[d.kinds[key]].expr
		if d.where == "module" {
			expr = tagKinds[d.kinds[key]].in
			if !strings.ContainsAny(expr, ".(") {
				expr = `"` + expr + `"`
			}
		}
		entries = append(entries, key+" = "+expr)
		objects = append(objects, "{ "+key+" = "+expr+" }")
	}
	tags := "{ " + strings.Join(entries, ", ") + " }"
	if d.merged {
		tags = "merge(" + strings.Join(objects, ", ") + ")"
	}
	if d.where == "json" {
		text, err := json.Marshal(map[string]any{"data": map[string]any{"coder_workspace_tags": map[string]any{name: map[string]any{"tags": "${" + tags + "}"}}}})
		if err != nil {
			panic(err)
		}
		content[name+".tf.json"] = string(text)
		return
	}
	file := map[string]string{"tf": "main.tf", "module": "m/main.tf"}[d.where]
	content[file] += fmt.Sprintf("data \"coder_workspace_tags\" %q {\n  tags = %s\n}\n", name, tags)
}

func (d declaration) has(kinds ...string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(d.kinds)), func(k string) bool { return slices.Contains(kinds, k) })
}

// TestTagsKnownOrRefused imports made-up templates. Whatever mixture of tags they declare, and where: either the import finds all of
// them, or it fails and names the place.
func TestTagsKnownOrRefused(t *testing.T) {
	if flag.Lookup("rapid.checks").Value.String() == "100" {
		// Each check runs Terraform five times.
		if err := flag.Set("rapid.checks", "8"); err != nil {
			t.Fatal(err)
		}
	}
	e := newExecutor(t)
	rapid.Check(t, func(rt *rapid.T) {
		content := files(tagWorld)
		content["m/main.tf"] = tagModule
		kinds := slices.Sorted(maps.Keys(tagKinds))
		want, refusable, computed := map[string]string{}, map[string]bool{}, false
		for i := range rapid.IntRange(1, 3).Draw(rt, "declarations") {
			name := fmt.Sprintf("d%d", i)
			d := declaration{
				where: rapid.SampledFrom([]string{"tf", "tf", "json", "module"}).Draw(rt, "where"), merged: rapid.Bool().Draw(rt, "merged"), kinds: map[string]string{},
			}
			for j := range rapid.IntRange(1, 3).Draw(rt, "tags") {
				d.kinds[fmt.Sprintf("%s_%d", name, j)] = rapid.SampledFrom(kinds).Draw(rt, "kind")
			}
			d.write(name, content)
			if d.has("resource", "attribute", "function") || d.where != "tf" && d.has("parameter") {
				refusable[name] = true
			}
			computed = computed || d.has("parameter")
			for key, kind := range d.kinds {
				want[key] = tagKinds[kind].value
			}
		}
		result := newTrial(t, content).importIt(e, &provisionerpb.TemplateImport{})
		if len(refusable) == 0 {
			got := result.GetTemplateImport()
			if diff := cmp.Diff(want, got.GetWorkspaceTags()); diff != "" || result.GetError() != "" || got.GetComputedTags() != computed || len(got.GetTagPlaces()) == 0 {
				rt.Fatalf("error %q, computed %v of %v, places %q, tags (-want +got):\n%s\n%v", result.GetError(), got.GetComputedTags(), computed, got.GetTagPlaces(), diff, content)
			}
			return
		}
		if len(result.GetTemplateImport().GetWorkspaceTags()) > 0 {
			rt.Errorf("a refused import has tags")
		}
		for name := range refusable {
			at, _, ok := strings.Cut(result.GetError(), ": ")
			if ok && strings.Contains(result.GetError(), "coder_workspace_tags."+name+" ") && strings.Contains(at, ".tf") && strings.Contains(at, ":") {
				return
			}
		}
		rt.Fatalf("error %q names none of %v and its place\n%v", result.GetError(), slices.Sorted(maps.Keys(refusable)), content)
	})
}

// TestTagsOfTwoBlocks checks that two values of one tag are refused, and equal ones are not.
func TestTagsOfTwoBlocks(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	const two = "data \"coder_workspace_tags\" \"a\" {\n  tags = { zone = \"x\" }\n}\ndata \"coder_workspace_tags\" \"b\" {\n  tags = { zone = \"%s\" }\n}\n"
	if result := newTrial(t, files(fmt.Sprintf(two, "x"))).importIt(e, &provisionerpb.TemplateImport{}); result.GetError() != "" {
		t.Errorf("equal values: %s", result.GetError())
	}
	result := newTrial(t, files(fmt.Sprintf(two, "y"))).importIt(e, &provisionerpb.TemplateImport{})
	if want := `main.tf:9: the tag "zone" is "y" here, and "x" at main.tf:6`; result.GetError() != want {
		t.Errorf("got %q, want %q", result.GetError(), want)
	}
	result = newTrial(t, files("variable \"v\" {\n  default = null\n}\ndata \"coder_workspace_tags\" \"a\" {\n  tags = { zone = var.v }\n}\n")).importIt(e, &provisionerpb.TemplateImport{})
	if want := `main.tf:9: the tag "zone" has no value`; !strings.HasPrefix(result.GetError(), want) {
		t.Errorf("got %q, want %q", result.GetError(), want)
	}
}
