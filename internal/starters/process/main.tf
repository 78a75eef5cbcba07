# A workspace is a process on the provisioner's own host. Nothing has to be installed or downloaded: "terraform_data" is part
# of Terraform. See README.md for what this is good for, and what not.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "shell" {
  name         = "shell"
  display_name = "Shell"
  description  = "What a terminal starts."
  default      = "/bin/bash"
  mutable      = true

  option {
    name  = "bash"
    value = "/bin/bash"
  }
  option {
    name  = "sh"
    value = "/bin/sh"
  }
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch

  metadata {
    key          = "load"
    display_name = "Load"
    script       = "cut -d' ' -f1-3 /proc/loadavg"
    interval     = 10
    timeout      = 1
  }
  metadata {
    key          = "disk"
    display_name = "Home folder"
    script       = "du -sh \"$HOME\" | cut -f1"
    interval     = 600
    timeout      = 30
  }
}

# The workspace's folder: it is made at the first start and removed when the workspace is deleted.
resource "terraform_data" "home" {
  input = { id = data.coder_workspace.me.id }

  provisioner "local-exec" {
    quiet       = true
    command     = <<-EOT
      set -eu
      umask 077
      mkdir -p "$CODER_WORKSPACES_DIR/$ID/home"
    EOT
    environment = { ID = self.input.id }
  }

  provisioner "local-exec" {
    when        = destroy
    quiet       = true
    command     = <<-EOT
      set -eu
      rm -rf "$CODER_WORKSPACES_DIR/$ID"
    EOT
    environment = { ID = self.input.id }
  }
}

# The workspace itself: it is there while the workspace runs. A new token means a new process.
resource "terraform_data" "process" {
  count            = data.coder_workspace.me.start_count
  input            = { id = terraform_data.home.output.id }
  triggers_replace = sha256(coder_agent.main.token)

  # The process gets a session of its own and an environment without anything of this build, and so outlives it. Its number is
  # noted together with the time of its start, so that stopping never hits another one.
  provisioner "local-exec" {
    quiet   = true
    command = <<-EOT
      set -eu
      umask 077
      cd "$CODER_WORKSPACES_DIR/$ID"
      printf %s "$INIT" >agent.sh
      printf '\n--- started %s\n' "$(date)" >>agent.log
      pid=$(setsid env -i PATH="$PATH" LANG="$${LANG:-C.UTF-8}" HOME="$PWD/home" SHELL="$LOGIN_SHELL" USER="$(id -un)" \
        CODER_AGENT_TOKEN="$TOKEN" sh -c 'echo $$; cd "$HOME" && exec sh ../agent.sh </dev/null >>../agent.log 2>&1' &)
      echo "$pid $(cut -d' ' -f22 "/proc/$pid/stat")" >process
    EOT
    environment = {
      ID          = self.input.id
      INIT        = coder_agent.main.init_script
      TOKEN       = coder_agent.main.token
      LOGIN_SHELL = data.coder_parameter.shell.value
    }
  }

  provisioner "local-exec" {
    when        = destroy
    quiet       = true
    command     = <<-EOT
      set -u
      cd "$CODER_WORKSPACES_DIR/$ID" 2>/dev/null || exit 0
      [ -f process ] || exit 0
      read -r pid began <process
      # A process that has ended but was not collected yet has the state Z.
      running() {
        set -- $(cat "/proc/$pid/stat" 2>/dev/null)
        [ "$${22:-}" = "$began" ] && [ "$3" != Z ]
      }
      if running; then
        kill -s TERM -- "-$pid"
        tries=0
        while running && [ $tries -lt 200 ]; do
          sleep 0.05
          tries=$((tries + 1))
        done
      fi
      # What the agent did not take with it.
      ! running || kill -s KILL -- "-$pid"
      rm -f process agent.sh
    EOT
    environment = { ID = self.input.id }
  }
}

resource "coder_metadata" "home" {
  resource_id = terraform_data.home.id
  item {
    key   = "owner"
    value = data.coder_workspace_owner.me.name
  }
}
