package terraform_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

const parameters = `
variable "region" {
  description = "Where."
  default     = "eu"
}
variable "sizes" {
  type    = list(number)
  default = [1, 2]
}
locals {
  regions = { eu = "Europe", us = "America" }
  unused  = terraform_data.vm.id
}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}
data "coder_parameter" "region" {
  name         = "region"
  display_name = "Region"
  description  = "Where it runs."
  icon         = "/icon/globe.svg"
  default      = var.region
  order        = 1
  form_type    = "radio"
  styling      = jsonencode({ disabled = true })
  dynamic "option" {
    for_each = local.regions
    content {
      name  = option.value
      value = option.key
    }
  }
}
data "coder_parameter" "cpu" {
  name    = "cpu"
  type    = "number"
  mutable = true
  order   = 2
  validation {
    min       = 2
    max       = 8
    monotonic = "increasing"
    error     = "Between {min} and {max}."
  }
}
data "coder_parameter" "debug" {
  name      = "debug"
  type      = "bool"
  default   = false
  mutable   = true
  ephemeral = true
  order     = 3
}
data "coder_parameter" "tools" {
  name      = "tools"
  type      = "list(string)"
  form_type = "multi-select"
  default   = jsonencode(["git"])
  order     = 4
  option {
    name  = "Git"
    value = "git"
  }
  option {
    name        = "Vim"
    value       = "vim"
    description = "An editor."
  }
}
data "coder_parameter" "name" {
  name  = "name"
  order = 5
  validation {
    regex = "^[a-z]+$"
    error = "Only lower case."
  }
}
data "coder_workspace_tags" "t" {
  tags = { region = data.coder_parameter.region.value }
}
data "coder_workspace_preset" "big" {
  name       = "Big"
  parameters = { cpu = "8" }
}
data "coder_external_auth" "git" {
  id       = "github"
  optional = true
}
resource "coder_agent" "main" {
  os             = "linux"
  arch           = "amd64"
  startup_script = "echo ${data.coder_parameter.name.value} ${data.coder_workspace_owner.me.session_token}"
}
resource "terraform_data" "disk" {}
resource "terraform_data" "vm" {
  count = data.coder_workspace.me.start_count * tonumber(data.coder_parameter.cpu.value) / tonumber(data.coder_parameter.cpu.value)
  input = [coder_agent.main.id, terraform_data.disk.id]
}
`

func TestImport(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files(strings.Replace(parameters, "terraform_data.vm.id", "terraform_data.disk.id", 1))
	template["README.md"] = "# Hello\n"
	j := newTrial(t, template)
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if result.GetError() != "" {
		t.Fatalf("import: %s\n%s", result.GetError(), j.sink.text())
	}
	got := result.GetTemplateImport()
	two, eight := int64(2), int64(8)
	want := []*provisionerpb.Parameter{
		{Name: "region", DisplayName: "Region", Description: "Where it runs.", Icon: "/icon/globe.svg", Type: "string", FormType: "radio",
			DefaultValue: "eu", Order: 1, Styling: `{"disabled":true}`,
			Options: []*provisionerpb.ParameterOption{{Name: "Europe", Value: "eu"}, {Name: "America", Value: "us"}}},
		{Name: "cpu", Type: "number", FormType: "input", Mutable: true, Required: true, Order: 2, Styling: "{}",
			Validation: &provisionerpb.ParameterValidation{Min: &two, Max: &eight, Monotonic: "increasing", Error: "Between {min} and {max}."}},
		{Name: "debug", Type: "bool", FormType: "checkbox", Mutable: true, Ephemeral: true, DefaultValue: "false", Order: 3, Styling: "{}"},
		{Name: "tools", Type: "list(string)", FormType: "multi-select", DefaultValue: `["git"]`, Order: 4, Styling: "{}",
			Options: []*provisionerpb.ParameterOption{{Name: "Git", Value: "git"}, {Name: "Vim", Value: "vim", Description: "An editor."}}},
		{Name: "name", Type: "string", FormType: "input", Required: true, Order: 5, Styling: "{}",
			Validation: &provisionerpb.ParameterValidation{Regex: "^[a-z]+$", Error: "Only lower case."}},
	}
	if diff := cmp.Diff(want, got.GetParameters(), protocmp.Transform()); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	wantVars := []*provisionerpb.TemplateVariable{
		{Name: "region", Description: "Where.", Type: "string", DefaultValue: "eu"},
		{Name: "sizes", Type: "list(number)", DefaultValue: "[1,2]"},
	}
	if diff := cmp.Diff(wantVars, got.GetVariables(), protocmp.Transform()); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if got.GetReadme() != "# Hello\n" || !got.GetNamesOwnerSessionToken() || got.GetNamesOwnerSshPrivateKey() {
		t.Errorf("readme %q, token %v, key %v", got.GetReadme(), got.GetNamesOwnerSessionToken(), got.GetNamesOwnerSshPrivateKey())
	}
	if diff := cmp.Diff(map[string]string{"region": "eu"}, got.GetWorkspaceTags()); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	wantPresets := []*provisionerpb.Preset{{Name: "Big", Parameters: []*provisionerpb.ParameterValue{{Name: "cpu", Value: "8"}}}}
	if diff := cmp.Diff(wantPresets, got.GetPresets(), protocmp.Transform()); diff != "" {
		t.Errorf("presets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]*provisionerpb.ExternalAuth{{Id: "github", Optional: true}}, got.GetExternalAuth(), protocmp.Transform()); diff != "" {
		t.Errorf("external auth (-want +got):\n%s", diff)
	}
	if got, want := shapeOf(got.GetStartResources()), "terraform_data.disk terraform_data.vm(main)"; got != want {
		t.Errorf("start resources %q, want %q", got, want)
	}
	if got, want := shapeOf(got.GetStopResources()), "terraform_data.disk coder_agent.main(main)"; got != want {
		t.Errorf("stop resources %q, want %q", got, want)
	}
	for _, stage := range []string{"Setting up", "Detecting template parameters", "Planning infrastructure"} {
		if stage != "Detecting template parameters" && !strings.Contains(j.sink.text(), "["+stage+"]") {
			t.Errorf("no log of the stage %s:\n%s", stage, j.sink.text())
		}
	}
}

// TestImportModules has a parameter in a module, an agent passed into one, and one used through locals.
func TestImportModules(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files(`
module "m" {
  source = "./mod"
  agent  = coder_agent.inner.id
}
locals {
  one = coder_agent.outer.id
  two = [local.one]
}
resource "coder_agent" "inner" {
  os   = "linux"
  arch = "amd64"
}
resource "coder_agent" "outer" {
  os   = "linux"
  arch = "amd64"
}
resource "terraform_data" "vm" {
  input = local.two
}
resource "terraform_data" "dns" {
  input = terraform_data.vm.id
}
`)
	template["mod/main.tf"] = `
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
variable "agent" {}
data "coder_parameter" "p" {
  name    = "in module"
  default = "x"
}
resource "terraform_data" "inner" {
  input = var.agent
}
resource "coder_app" "a" {
  agent_id = var.agent
  slug     = "web"
  url      = "http://localhost:8080"
}
`
	j := newTrial(t, template)
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if result.GetError() != "" {
		t.Fatalf("import: %s\n%s", result.GetError(), j.sink.text())
	}
	got := result.GetTemplateImport()
	if len(got.GetParameters()) != 1 || got.GetParameters()[0].GetName() != "in module" {
		t.Errorf("parameters %v", got.GetParameters())
	}
	want := "terraform_data.inner(inner) terraform_data.dns terraform_data.vm(outer)"
	if got := shapeOf(got.GetStartResources()); got != want {
		t.Errorf("import: resources %q, want %q", got, want)
	}
	j = newTrial(t, template)
	built := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start}))
	if got := shapeOf(built.GetResources()); got != want {
		t.Errorf("build: resources %q, want %q", got, want)
	}
	for _, r := range built.GetResources() {
		if r.GetName() == "inner" && (len(r.GetAgents()) != 1 || len(r.GetAgents()[0].GetApps()) != 1) {
			t.Errorf("the module's app is not with its agent: %v", r)
		}
	}
	if !strings.Contains(j.sink.text(), "Starting workspace") {
		t.Errorf("no stage of the start:\n%s", j.sink.text())
	}
}

func TestImportMistakes(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for name, c := range map[string]struct {
		files map[string]string
		vars  []*provisionerpb.VariableValue
		code  string
		want  []string
	}{
		"syntax":     {files: map[string]string{"main.tf": "\n\nresource \"x\" {\n  a = = 1\n}\n"}, want: []string{"main.tf:4: "}},
		"no files":   {files: map[string]string{"README.md": "x"}, want: []string{"no .tf file"}},
		"reference":  {files: files("output \"o\" {\n  value = var.nope\n}\n"), want: []string{"main.tf:7: ", "nope"}},
		"variable":   {files: files("variable \"image\" {}\nvariable \"zone\" {}\n"), code: "REQUIRED_TEMPLATE_VARIABLES", want: []string{"image", "zone", "--variable image="}},
		"wrong type": {files: files("variable \"n\" {\n  type = number\n}\n"), vars: []*provisionerpb.VariableValue{{Name: "n", Value: "x"}}, want: []string{"number"}},
		"refused value": {
			files: files("variable \"region\" {\n  validation {\n    condition     = var.region == \"eu\"\n    error_message = \"The region must be eu.\"\n  }\n}\n"),
			vars:  []*provisionerpb.VariableValue{{Name: "region", Value: "us"}}, want: []string{"variable region: ", "The region must be eu."},
		},
		"bad default": {
			files: files("data \"coder_parameter\" \"cpu\" {\n  name = \"cores\"\n  type = \"number\"\n  default = 9\n  validation {\n    max = 4\n  }\n}\n"),
			code:  "INVALID_PARAMETERS", want: []string{`parameter "cores"`, "more than the maximum 4"},
		},
		"same name": {
			files: files("data \"coder_parameter\" \"a\" {\n  name = \"x\"\n  default = 1\n}\ndata \"coder_parameter\" \"b\" {\n  name = \"x\"\n  default = 1\n}\n"),
			code:  "INVALID_PARAMETERS", want: []string{"two parameters", `"x"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, c.files)
			result := j.importIt(e, &provisionerpb.TemplateImport{Variables: c.vars})
			if result.GetError() == "" {
				t.Fatal("import succeeded")
			}
			for _, want := range c.want {
				if !strings.Contains(result.GetError(), want) {
					t.Errorf("error %q does not have %q", result.GetError(), want)
				}
			}
			if strings.Contains(result.GetError(), "zz_job") {
				t.Errorf("error %q names a file that the author does not have", result.GetError())
			}
			if result.GetErrorCode() != c.code {
				t.Errorf("code %q, want %q", result.GetErrorCode(), c.code)
			}
		})
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	template := files(`
data "coder_parameter" "count" {
  name = "count"
  type = "number"
}
resource "terraform_data" "vm" {
  count = data.coder_parameter.count.value
}
`)
	dryRun := func(values ...*provisionerpb.ParameterValue) *provisionerpb.Result {
		return newTrial(t, template).do(e, &provisionerpb.Offer{Job: &provisionerpb.Offer_TemplateDryRun{
			TemplateDryRun: &provisionerpb.TemplateDryRun{Parameters: values, Metadata: metadata()}}})
	}
	result := dryRun(&provisionerpb.ParameterValue{Name: "count", Value: "3"})
	if n := len(result.GetTemplateDryRun().GetResources()); result.GetError() != "" || n != 3 {
		t.Errorf("%d resources, error %q", n, result.GetError())
	}
	result = dryRun()
	if result.GetErrorCode() != "INVALID_PARAMETERS" || !strings.Contains(result.GetError(), "count") {
		t.Errorf("without a value: %q (%s)", result.GetError(), result.GetErrorCode())
	}
}
