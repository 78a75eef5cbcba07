package terraform_test

import (
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestImpossibleAgents imports templates whose agents could never connect.
func TestImpossibleAgents(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	agent := func(attrs string) string {
		return "resource \"coder_agent\" \"main\" {\n  arch = \"amd64\"\n" + attrs + "}\n"
	}
	module := func(attrs string) map[string]string {
		all := files("module \"far\" {\n  source = \"./far\"\n}\n")
		all["far/main.tf"] = files(agent(attrs))["main.tf"]
		return all
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // in the error; if empty, the import succeeds
	}{
		"windows":           {files(agent("os = \"windows\"\n")), nil},
		"darwin":            {files(agent("os = \"darwin\"\n")), []string{`main.tf:6: coder_agent.main has os = "darwin"`, `os = "linux" or "windows"`}},
		"instance identity": {files(agent("os = \"linux\"\nauth = \"aws-instance-identity\"\n")), nil},
		"computed":          {files("locals {\n  os = lower(\"DARWIN\")\n}\n" + agent("os = local.os\n")), []string{`main.tf:9: coder_agent.main has os = "darwin"`}},
		"in a module":       {module("os = \"darwin\"\n"), []string{`main.tf:6: in module.far: module.far.coder_agent.main has os = "darwin"`}},
		"in JSON":           {map[string]string{"main.tf.json": "{\"terraform\": {\"required_providers\": {\"coder\": {\"source\": \"coder/coder\"}}},\n\"resource\": {\"coder_agent\": {\"main\": {\"arch\": \"amd64\", \"os\": \"darwin\"}}}}"}, []string{"main.tf.json:2: coder_agent.main"}},
		"none of them made": {files(agent("os = \"darwin\"\ncount = 0\n") + strings.Replace(agent("os = \"linux\"\nauth = \"token\"\n"), "main", "other", 1)), nil},
		"linux in a module": {module("os = \"linux\"\n"), nil},
	} {
		t.Run(name, func(t *testing.T) { // one after the other, because they share one slot
			j := newTrial(t, c.files)
			got := j.importIt(e, &provisionerpb.TemplateImport{}).GetError()
			if c.want == nil && got != "" || c.want != nil && got == "" {
				t.Errorf("error %q, want %q\n%s", got, c.want, j.sink.text())
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("error %q does not have %q", got, want)
				}
			}
		})
	}
}

// ignoredInModule has such features in a module.
const ignoredInModule = `resource "coder_agent" "x" {
  arch = "amd64"
  os   = "linux"
  resources_monitoring {
    volume {
      path      = "/"
      enabled   = true
      threshold = 90
    }
  }
}
data "coder_task" "me" {}
`

// ignoredFeatures is a template with features that have no effect here, and with some that look like them.
const ignoredFeatures = `resource "coder_agent" "main" {
  arch          = "amd64"
  os            = "linux"
  api_key_scope = "no_user_data"
  resources_monitoring {
    memory {
      enabled   = true
      threshold = 80
    }
  }
}
resource "coder_devcontainer" "dc" {
  count            = 2
  agent_id         = coder_agent.main.id
  workspace_folder = "/w${count.index}"
}
data "coder_workspace_preset" "p" {
  name = "p"
  prebuilds {
    instances = 1
  }
}
module "far" {
  source = "./far"
}
resource "coder_env" "fine" {
  agent_id = coder_agent.main.id
  name     = "A"
  value    = "b"
}
resource "coder_app" "inner" {
  agent_id = coder_devcontainer.dc[0].subagent_id
  slug     = "inner"
  url      = "http://localhost:1"
}
module "inner" {
  source   = "./given"
  agent_id = coder_devcontainer.dc[1].subagent_id
}
data "coder_task" "me" {}
resource "coder_ai_task" "t" {
  app_id = coder_app.inner.id
}
resource "coder_agent_instance" "i" {
  agent_id    = coder_agent.main.id
  instance_id = "i-1"
}
data "coder_workspace_preset" "made" {
  name = "made"
  dynamic "prebuilds" {
    for_each = [1]
    content {
      instances = prebuilds.value
    }
  }
}
`

// TestIgnoredFeatures imports features without effect here: each is named once, with file and line, and the import succeeds.
func TestIgnoredFeatures(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	all := files(ignoredFeatures)
	all["given/main.tf"] = files("variable \"agent_id\" {}\nresource \"coder_script\" \"s\" {\n  agent_id = var.agent_id\n  display_name = \"s\"\n  script = \"true\"\n  run_on_start = true\n}\n")["main.tf"]
	all["far/main.tf"] = files(ignoredInModule)["main.tf"]
	j := newTrial(t, all)
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	log := j.sink.text()
	if result.GetError() != "" {
		t.Fatalf("import: %s\n%s", result.GetError(), log)
	}
	for _, want := range []string{
		"main.tf:28: in module.far: data.coder_task has no effect on this server",
		"main.tf:45: data.coder_task has no effect on this server: this server has no tasks",
		"main.tf:46: coder_ai_task has no effect on this server: this server has no tasks",
	} {
		if strings.Count(log, want) != 1 {
			t.Errorf("the log does not have once: %s", want)
		}
	}
	if strings.Count(log, "has no effect on this server") != 3 {
		t.Errorf("the log:\n%s", log)
	}
	if got := result.GetTemplateImport().GetPresets(); len(got) != 2 || got[0].GetPrebuilds().GetInstances() != 1 || got[1].GetPrebuilds().GetInstances() != 1 {
		t.Errorf("presets: %v", got)
	}
	found := false
	for _, r := range result.GetTemplateImport().GetStartResources() {
		for _, a := range r.GetAgents() {
			found = found || a.GetNoUserData()
		}
	}
	if !found {
		t.Error(`no agent has api_key_scope = "no_user_data"`)
	}
}

// TestOldTerraformIsNotBlamed checks that imports that fail before Terraform evaluates anything do not mention its version.
func TestOldTerraformIsNotBlamed(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	for name, text := range map[string]string{
		"an agent that cannot connect":   "resource \"coder_agent\" \"main\" {\n  os = \"darwin\"\n  arch = \"amd64\"\n}\n",
		"a provider that does not exist": "provider \"nowhere\" {}\nresource \"nowhere_thing\" \"x\" {}\n",
	} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, files(text))
			if result := j.importIt(e, &provisionerpb.TemplateImport{}); result.GetError() == "" {
				t.Fatal("import succeeded")
			}
			if got := strings.Contains(j.sink.text(), "need 1.12"); got {
				t.Errorf("the log blames Terraform:\n%s", j.sink.text())
			}
		})
	}
}
