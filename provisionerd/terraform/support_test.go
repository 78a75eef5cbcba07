package terraform_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// TestEveryAgentIsImported imports agents of all systems, with all ways to prove who they are.
func TestEveryAgentIsImported(t *testing.T) {
	t.Parallel()
	e := newExecutor(t)
	text, n := "", 0
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, auth := range []string{"token", "aws-instance-identity", "azure-instance-identity", "google-instance-identity"} {
			text += fmt.Sprintf("resource \"coder_agent\" \"a%d\" {\n  arch = \"amd64\"\n  os = %q\n  auth = %q\n}\n", n, system, auth)
			n++
		}
	}
	j := newTrial(t, files(text))
	result := j.importIt(e, &provisionerpb.TemplateImport{})
	if got := result.GetTemplateImport().GetStartResources(); result.GetError() != "" || len(got) != n {
		t.Errorf("%q, %d resources, want %d\n%s", result.GetError(), len(got), n, j.sink.text())
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
