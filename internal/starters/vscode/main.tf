# A workspace is a container on the Docker host that the provisioner reaches, as in the starter "docker". vscode.tf adds VS Code in
# the browser, from an archive that the server's operator provides.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    docker = {
      source = "kreuzwerker/docker"
    }
  }
}

variable "docker_host" {
  description = "Address of the Docker daemon, for example tcp://10.0.0.5:2376. Empty means the local one."
  type        = string
  default     = ""
}

variable "image" {
  description = "The container image. It needs tar, curl or wget, and a user with the home folder /home/coder."
  type        = string
  default     = "codercom/enterprise-base:ubuntu"
}

provider "docker" {
  host = var.docker_host != "" ? var.docker_host : null
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

locals {
  # A container reaches the server by this name when the server runs on the Docker host itself.
  init_script = replace(coder_agent.main.init_script, "/localhost|127\\.0\\.0\\.1/", "host.docker.internal")
  # A prebuilt workspace has no owner yet, and keeps its container when it gets one.
  prebuild = data.coder_workspace.me.is_prebuild
  name     = local.prebuild ? "coder-${data.coder_workspace.me.id}" : "coder-${data.coder_workspace_owner.me.name}-${lower(data.coder_workspace.me.name)}"
  hostname = local.prebuild ? "workspace" : lower(data.coder_workspace.me.name)
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch

  env = {
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  metadata {
    key          = "disk"
    display_name = "Home folder"
    script       = "df -h \"$HOME\" | awk 'END { print $3 \" of \" $2 }'"
    interval     = 60
    timeout      = 5
  }
}

resource "docker_volume" "home" {
  name = "coder-${data.coder_workspace.me.id}-home"

  # The volume holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = all
  }
}

resource "docker_container" "workspace" {
  count      = data.coder_workspace.me.start_count
  image      = var.image
  name       = local.name
  hostname   = local.hostname
  entrypoint = ["sh", "-c", local.init_script]
  env        = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]

  host {
    host = "host.docker.internal"
    ip   = "host-gateway"
  }
  volumes {
    container_path = "/home/coder"
    volume_name    = docker_volume.home.name
  }
  labels {
    label = "coder.owner"
    value = data.coder_workspace_owner.me.name
  }
  labels {
    label = "coder.workspace_id"
    value = data.coder_workspace.me.id
  }

  # Changes of these wait for the next start, which makes a new container.
  lifecycle {
    ignore_changes = [name, hostname, labels]
  }
}
