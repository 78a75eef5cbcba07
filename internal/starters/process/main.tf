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

# The workspace itself: it is there while the workspace runs. A new token means a new process.
resource "terraform_data" "process" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = sha256(coder_agent.main.token)

  # What a build starts ends with the build, so the process is the provisioner's to start: in a sandbox of this workspace, which
  # may write to its home folder and to temporary folders of its own.
  provisioner "local-exec" {
    quiet   = true
    command = <<-EOT
      : "$${CODER_PROVISIONER_PROGRAM:?this template needs a newer provisioner, upgrade it}"
      exec "$CODER_PROVISIONER_PROGRAM" workspace-process start --env CODER_AGENT_TOKEN --env SHELL -- /bin/sh -c "$INIT"
    EOT
    environment = {
      INIT              = coder_agent.main.init_script
      CODER_AGENT_TOKEN = coder_agent.main.token
      SHELL             = data.coder_parameter.shell.value
    }
  }

  provisioner "local-exec" {
    when    = destroy
    quiet   = true
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process stop"
  }
}

resource "coder_metadata" "process" {
  count       = data.coder_workspace.me.start_count
  resource_id = terraform_data.process[0].id
  item {
    key   = "owner"
    value = data.coder_workspace_owner.me.name
  }
}
