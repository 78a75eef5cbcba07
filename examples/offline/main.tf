# A template whose workspaces use the registries of your own network: docs/offline.md shows how to push it. The workspace is a process on the
# provisioner's host, as in the starter "process"; what matters here is the agent's environment, which works the same for containers and machines.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "npm_registry" {
  description = "URL of the npm registry, such as https://packages.example.com/npm/"
  type        = string
  default     = ""
}

variable "pip_index" {
  description = "URL of the Python index, such as https://packages.example.com/pypi/simple/"
  type        = string
  default     = ""
}

variable "go_proxy" {
  description = "URL of the Go module proxy, such as https://packages.example.com/go"
  type        = string
  default     = ""
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}

locals {
  # One map for each tool. A tool without a registry keeps its own settings.
  npm = var.npm_registry == "" ? {} : {
    NPM_CONFIG_REGISTRY        = var.npm_registry
    NPM_CONFIG_AUDIT           = "false" # many private registries do not answer audits
    NPM_CONFIG_UPDATE_NOTIFIER = "false"
  }
  pip = var.pip_index == "" ? {} : {
    PIP_INDEX_URL                 = var.pip_index
    PIP_DISABLE_PIP_VERSION_CHECK = "1"
  }
  go = var.go_proxy == "" ? {} : {
    GOPROXY     = var.go_proxy # without ",direct", which would ask the modules' own hosts
    GOSUMDB     = "off"        # the checksum database is on the internet; go.sum still protects each project
    GOTOOLCHAIN = "local"      # does not download another version of Go
  }
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch
  env  = merge(local.npm, local.pip, local.go)
}

resource "terraform_data" "process" {
  count            = data.coder_workspace.me.start_count
  triggers_replace = sha256(coder_agent.main.token)

  provisioner "local-exec" {
    quiet   = true
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process start --env CODER_AGENT_TOKEN -- /bin/sh -c \"$INIT\""
    environment = {
      INIT              = coder_agent.main.init_script
      CODER_AGENT_TOKEN = coder_agent.main.token
    }
  }

  provisioner "local-exec" {
    when    = destroy
    quiet   = true
    command = "exec \"$CODER_PROVISIONER_PROGRAM\" workspace-process stop"
  }
}
