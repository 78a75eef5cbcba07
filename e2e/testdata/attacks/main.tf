# Runs the shell commands in the parameter "commands" beside the scripts of this folder, and then starts the workspace's agent if they ask for it.
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

data "coder_parameter" "commands" {
  name    = "commands"
  default = "true"
  mutable = true
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch
}

resource "terraform_data" "attack" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = sha256(coder_agent.main.token)
  provisioner "local-exec" {
    command = data.coder_parameter.commands.value
    environment = {
      INIT              = coder_agent.main.init_script
      CODER_AGENT_TOKEN = nonsensitive(coder_agent.main.token)
      OWNERS_SESSION    = nonsensitive(data.coder_workspace_owner.me.session_token)
      OWNERS_KEY        = nonsensitive(data.coder_workspace_owner.me.ssh_private_key)
    }
  }
}
