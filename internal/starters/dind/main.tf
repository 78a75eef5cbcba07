# A workspace is a container with a Docker engine of its own beside it, on the Docker host that the provisioner reaches. The home folder and
# the engine's images are volumes that outlive the containers.
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
  description = "The image of workspaces. It needs docker (the command line, with compose), curl or wget, and the user 1000 with the home folder /home/coder."
  type        = string
  default     = "codercom/enterprise-base:ubuntu"
}

variable "engine_image" {
  description = "The image of the Docker engine beside each workspace. Its program is dockerd."
  type        = string
  default     = "docker:dind"
}

variable "runtime" {
  description = "The container runtime of the engine, for example sysbox-runc, which needs no privileges. Empty means the default one, with privileges."
  type        = string
  default     = ""
}

provider "docker" {
  host = var.docker_host != "" ? var.docker_host : null
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

locals {
  # A prebuilt workspace has no owner yet, and keeps its containers when it gets one.
  prebuild = data.coder_workspace.me.is_prebuild
  name     = local.prebuild ? "coder-${data.coder_workspace.me.id}" : "coder-${data.coder_workspace_owner.me.name}-${lower(data.coder_workspace.me.name)}"
  hostname = local.prebuild ? "workspace" : lower(data.coder_workspace.me.name)
  engine   = "unix:///run/engine/docker.sock"
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch

  env = {
    DOCKER_HOST         = local.engine
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  startup_script = <<-EOT
    set -e
    for i in $(seq 60); do
      ! docker version >/dev/null 2>&1 || break
      sleep 1
    done
    docker version >/dev/null
  EOT

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

resource "docker_volume" "engine" {
  name = "coder-${data.coder_workspace.me.id}-engine"

  lifecycle {
    ignore_changes = all
  }
}

resource "docker_volume" "socket" {
  name = "coder-${data.coder_workspace.me.id}-socket"

  lifecycle {
    ignore_changes = all
  }
}

# The engine has the home folder at the same place as the workspace, for containers that mount files from there, and its network is the
# workspace's: the ports that containers publish are on the workspace's own localhost.
resource "docker_container" "engine" {
  count      = data.coder_workspace.me.start_count
  image      = var.engine_image
  name       = "${local.name}-engine"
  hostname   = local.hostname
  privileged = var.runtime == ""
  runtime    = var.runtime != "" ? var.runtime : null
  command    = ["dockerd", "--host=${local.engine}", "--group=1000"]

  volumes {
    container_path = "/run/engine"
    volume_name    = docker_volume.socket.name
  }
  volumes {
    container_path = "/var/lib/docker"
    volume_name    = docker_volume.engine.name
  }
  volumes {
    container_path = "/home/coder"
    volume_name    = docker_volume.home.name
  }
  labels {
    label = "coder.workspace_id"
    value = data.coder_workspace.me.id
  }

  # These follow at the next start, which makes a new container.
  lifecycle {
    ignore_changes = [name, hostname]
  }
}

data "docker_network" "bridge" {
  name = "bridge"
}

resource "docker_container" "workspace" {
  count        = data.coder_workspace.me.start_count
  image        = var.image
  name         = local.name
  network_mode = "container:${docker_container.engine[0].id}"
  env          = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]

  # If the server runs on the Docker host itself, the workspace reaches it by the address of the host's bridge.
  entrypoint = ["sh", "-c", replace(coder_agent.main.init_script, "/localhost|127\\.0\\.0\\.1/", try([
    for c in data.docker_network.bridge.ipam_config : can(regex("^[0-9.]+$", c.gateway)) ? c.gateway : cidrhost(c.subnet, 1)
    if can(regex("^[0-9.]+/", c.subnet))
  ][0], "172.17.0.1"))]

  volumes {
    container_path = "/home/coder"
    volume_name    = docker_volume.home.name
  }
  volumes {
    container_path = "/run/engine"
    volume_name    = docker_volume.socket.name
  }
  labels {
    label = "coder.owner"
    value = data.coder_workspace_owner.me.name
  }
  labels {
    label = "coder.workspace_id"
    value = data.coder_workspace.me.id
  }

  # These follow at the next start, which makes a new container.
  lifecycle {
    ignore_changes = [name, labels]
  }
}
