package legacy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/codermesh/codermesh/v2/internal/legacy"
)

// old is a template for provider 0.6, with comments, odd spacing and all that can be rewritten.
const old = `terraform {
  required_providers {
    coder = {
      source  = "coder/coder"
      version = "~> 0.6.12" # pinned
    }
  }
}

provider "coder" {
  feature_use_managed_variables = true
}

provider "coder" { feature_use_managed_variables = "true" }

# Who works here.
data "coder_workspace" "me" {
}

data "coder_git_auth" "gh" { # the forge
  id = "github"
}

data "coder_parameter" "zone" {
  name                 = "zone"
  legacy_variable_name = "zone"
  legacy_variable      = var.zone # as before
  default              = "a"
}

resource "coder_agent" "main" {
    os                     = "linux"
    arch                   = "amd64"
    login_before_ready     = false   # wait
    startup_script_timeout = 180
    env = {
      WHO   = data.coder_workspace.me.owner
      MAIL  = "${data.coder_workspace.me.owner_email}/${data.coder_workspace.me["owner_id"]}"
      GROUP = data.coder_workspace.me.owner_groups[0]
      TOKEN = data.coder_git_auth.gh.access_token
      NAME  = lower(data.coder_workspace.me.name)
    }
    startup_script = <<-EOT
      echo "owner ${data.coder_workspace.me.owner_name} owner"
    EOT
}

resource "coder_agent" "more" {
  count              = 2
  login_before_ready = data.coder_workspace.me.owner == "ada"
}

resource "coder_app" "Code_Server" {
	agent_id      = coder_agent.main.id
	name          = "code"
	relative_path = true
}

resource "coder_app" "vim" { agent_id = coder_agent.main.id }

resource "coder_app" "many" {
  for_each      = toset(["a"])
  agent_id      = coder_agent.main.id
  relative_path = each.key == coder_app.vim.name
}

output "all" {
  value = [data.coder_workspace.me[*].owner, coder_agent.main.startup_script_timeout, data.coder_workspace.me[local.n].owner_id]
}
`

const migrated = `terraform {
  required_providers {
    coder = {
      source  = "coder/coder"
      version = "~> 2.0" # pinned
    }
  }
}

provider "coder" {
}

provider "coder" { }

# Who works here.
data "coder_workspace" "me" {
}

data "coder_workspace_owner" "me" {}

data "coder_external_auth" "gh" { # the forge
  id = "github"
}

data "coder_parameter" "zone" {
  name                 = "zone"
  # as before
  default              = "a"
}

resource "coder_agent" "main" {
    os                     = "linux"
    arch                   = "amd64"
    startup_script_behavior     = "blocking"   # wait
    env = {
      WHO   = data.coder_workspace_owner.me.name
      MAIL  = "${data.coder_workspace_owner.me.email}/${data.coder_workspace_owner.me.id}"
      GROUP = data.coder_workspace_owner.me.groups[0]
      TOKEN = data.coder_external_auth.gh.access_token
      NAME  = lower(data.coder_workspace.me.name)
    }
    startup_script = <<-EOT
      echo "owner ${data.coder_workspace_owner.me.full_name} owner"
    EOT
}

resource "coder_agent" "more" {
  count              = 2
  startup_script_behavior = (data.coder_workspace_owner.me.name == "ada") ? "non-blocking" : "blocking"
}

resource "coder_app" "Code_Server" {
	slug = "code-server"
	agent_id      = coder_agent.main.id
	display_name          = "code"
	subdomain = false
}

resource "coder_app" "vim" {
  slug = "vim"
   agent_id = coder_agent.main.id 
}

resource "coder_app" "many" {
  for_each      = toset(["a"])
  agent_id      = coder_agent.main.id
  subdomain = !(each.key == coder_app.vim.display_name)
}

output "all" {
  value = [data.coder_workspace.me[*].owner, coder_agent.main.startup_script_timeout, data.coder_workspace_owner.me.id]
}
`

func lines(left []legacy.Finding) (all []string) {
	for _, f := range left {
		place, _, _ := strings.Cut(f.String(), " ")
		all = append(all, place)
	}
	return all
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	changed, left, err := legacy.Rewrite(map[string][]byte{"main.tf": []byte(old)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(migrated, string(changed["main.tf"])); diff != "" {
		t.Errorf("main.tf (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"main.tf:27:", "main.tf:35:", "main.tf:61:", "main.tf:68:", "main.tf:68:"}, lines(left)); diff != "" {
		t.Errorf("left (-want +got):\n%s\n%v", diff, left)
	}
	// What is left is left again, and nothing else is found.
	again, left, err := legacy.Rewrite(changed)
	if err != nil || len(again) > 0 {
		t.Errorf("a second run changes %s, %v", again, err)
	}
	if len(left) != 3 {
		t.Errorf("a second run leaves %v", left)
	}
}

// TestRewriteModules checks that each folder gets a data source of its own, where it needs one.
func TestRewriteModules(t *testing.T) {
	t.Parallel()
	changed, left, err := legacy.Rewrite(map[string][]byte{
		"main.tf":           []byte("data \"coder_workspace\" \"w\" {}\nlocals {\n  a = data.coder_workspace.w.name\n}\n"),
		"mod/a.tf":          []byte("locals {\n  a = data.coder_workspace.me[0].owner\n}\n"),
		"mod/b.tf":          []byte("data \"coder_workspace\" \"me\" {\n  count = 1\n}"),
		"has/a.tf":          []byte("data \"coder_workspace_owner\" \"it\" {}\nlocals {\n  a = data.coder_workspace.me.owner_session_token\n}\n"),
		"json/main.tf.json": []byte("{\"resource\": {\"coder_agent\": {\"a\": {\n \"login_before_ready\": true,\n \"os\": \"${data.coder_workspace.me.owner}\"}}}}"),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{
		"mod/a.tf": []byte("locals {\n  a = data.coder_workspace_owner.me.name\n}\n"),
		"mod/b.tf": []byte("data \"coder_workspace\" \"me\" {\n  count = 1\n}\n\ndata \"coder_workspace_owner\" \"me\" {}"),
		"has/a.tf": []byte("data \"coder_workspace_owner\" \"it\" {}\nlocals {\n  a = data.coder_workspace_owner.it.session_token\n}\n"),
	}
	if diff := cmp.Diff(want, changed); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"json/main.tf.json:2:", "json/main.tf.json:3:"}, lines(left)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if _, _, err := legacy.Rewrite(map[string][]byte{"main.tf": []byte("a {\n")}); err == nil || !strings.HasPrefix(err.Error(), "main.tf:") {
		t.Errorf("broken file: %v", err)
	}
}

func TestExcludes(t *testing.T) {
	t.Parallel()
	for constraint, want := range map[string]bool{
		"~> 0.6.12": true, "0.4.9": true, ">= 0.12, < 2": true, legacy.Constraint: false, ">= 0.17": false, "": false, "nonsense": false,
	} {
		if got := legacy.Excludes(constraint); got != want {
			t.Errorf("Excludes(%q) = %v, want %v", constraint, got, want)
		}
	}
}

func FuzzRewrite(f *testing.F) {
	f.Add([]byte(old))
	f.Add([]byte(migrated))
	f.Fuzz(func(t *testing.T, text []byte) {
		changed, _, err := legacy.Rewrite(map[string][]byte{"main.tf": text})
		if err != nil || len(changed) == 0 {
			return
		}
		if _, _, err := legacy.Rewrite(changed); err != nil {
			t.Errorf("the result cannot be parsed: %v\n%q\n%q", err, text, changed["main.tf"])
		}
	})
}
