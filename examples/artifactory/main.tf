# A template whose workspaces get npm, pip, Go and Docker packages from JFrog Artifactory, each with its owner's own login:
# docs/external-auth.md shows how to set it up. The workspace is a process on the provisioner's host, as in the starter "process"; the agent's
# environment and the script work the same for containers and machines.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "artifactory_url" {
  description = "URL of Artifactory, such as https://example.jfrog.io/artifactory"
  type        = string
}

variable "external_auth_id" {
  description = "ID of the external login"
  type        = string
  default     = "jfrog"
}

variable "npm" {
  description = "key of the npm repository"
  type        = string
  default     = "npm"
}

variable "pypi" {
  description = "key of the Python repository"
  type        = string
  default     = "pypi"
}

variable "go" {
  description = "key of the Go repository"
  type        = string
  default     = "go"
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

# Without the login, creating the workspace asks for it.
data "coder_external_auth" "jfrog" {
  id = var.external_auth_id
}

locals {
  url  = trimsuffix(var.artifactory_url, "/")
  host = regex("^https://([^/]+)", local.url)[0]
  npm  = "${local.url}/api/npm/${var.npm}/"
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch
  # The files are in a folder of their own: the user's own settings stay, and win where both have one.
  env = {
    NETRC                   = "$HOME/.artifactory/netrc" # pip and Go read it
    NPM_CONFIG_GLOBALCONFIG = "$HOME/.artifactory/npmrc"
    NPM_CONFIG_REGISTRY     = local.npm
    PIP_INDEX_URL           = "${local.url}/api/pypi/${var.pypi}/simple"
    GOPROXY                 = "${local.url}/api/go/${var.go}"
    GOSUMDB                 = "off" # it would ask the checksum database on the internet for each module
    DOCKER_CONFIG           = "$HOME/.artifactory/docker"
  }
}

# The token is not in Terraform's state: the script asks for it at each start, and again before it expires.
resource "coder_script" "artifactory" {
  agent_id           = coder_agent.main.id
  display_name       = "Artifactory"
  icon               = "/icon/docker.svg"
  run_on_start       = true
  start_blocks_login = true
  cron               = "0 */20 * * * *"
  script             = <<-EOT
    #!/bin/sh
    set -eu
    token=$(coder external-auth access-token '${var.external_auth_id}')
    user='${data.coder_workspace_owner.me.name}'
    umask 077
    mkdir -p ~/.artifactory/docker
    # pip looks for the host, and Go for the host with its port, if it has one.
    for machine in ${split(":", local.host)[0]} ${local.host}; do
      printf 'machine %s login %s password %s\n' "$machine" "$user" "$token"
    done > ~/.artifactory/netrc.new
    printf '//%s:_authToken=%s\n' '${trimprefix(local.npm, "https://")}' "$token" > ~/.artifactory/npmrc.new
    auth=$(printf '%s:%s' "$user" "$token" | base64 | tr -d '\n')
    printf '{"auths": {"%s": {"auth": "%s"}}}\n' '${local.host}' "$auth" > ~/.artifactory/docker/config.json.new
    for file in netrc npmrc docker/config.json; do
      mv ~/.artifactory/"$file.new" ~/.artifactory/"$file"
    done
  EOT
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
