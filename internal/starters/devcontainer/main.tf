# A workspace is a container with a Docker engine of its own beside it, on the Docker host that the provisioner reaches. The agent clones a Git
# repository and starts the dev container that the repository's devcontainer.json describes. The home folder, which holds the repository, and the
# engine's images are volumes that outlive the containers.
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
  description = "The image of workspaces. It needs git, docker (the command line), npm, curl or wget, and the user 1000 with the home folder /home/coder."
  type        = string
  default     = "codercom/enterprise-node:ubuntu"
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

data "coder_parameter" "repository" {
  name         = "repository"
  display_name = "Repository"
  description  = "The Git repository to work on. Its devcontainer.json describes the dev container."
  default      = "https://github.com/microsoft/vscode-remote-try-go"
  mutable      = true
  order        = 1

  validation {
    regex = "^((https?|ssh)://[^'[:space:]]+|[^@:/'[:space:]]+@[^:'[:space:]]+:[^'[:space:]]+)$"
    error = "Give the address of a Git repository, such as https://git.example.com/team/project."
  }
}

data "coder_parameter" "fallback_image" {
  name         = "fallback_image"
  display_name = "Image without a devcontainer.json"
  description  = "The image of the dev container for repositories that have no devcontainer.json."
  default      = "mcr.microsoft.com/devcontainers/base:ubuntu"
  mutable      = true
  order        = 2

  validation {
    regex = "^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
    error = "Give the name of an image, such as registry.example.com/team/image:1.2."
  }
}

locals {
  # A prebuilt workspace has no owner yet, and keeps its containers when it gets one.
  prebuild = data.coder_workspace.me.is_prebuild
  name     = local.prebuild ? "coder-${data.coder_workspace.me.id}" : "coder-${data.coder_workspace_owner.me.name}-${lower(data.coder_workspace.me.name)}"
  hostname = local.prebuild ? "workspace" : lower(data.coder_workspace.me.name)
  engine   = "unix:///run/engine/docker.sock"

  # The repository's own name: what follows the last slash or colon.
  project = coalesce(replace(trimsuffix(data.coder_parameter.repository.value, "/"), "/^.*[/:]|\\.git$/", ""), "project")
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch

  env = {
    DOCKER_HOST         = local.engine
    PATH                = "/home/coder/.local/bin:$PATH"
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  # The agent starts the dev container when this has ended.
  startup_script = <<-EOT
    set -e
    command -v devcontainer >/dev/null || npm install --global --prefix "$HOME/.local" @devcontainers/cli
    cd "$HOME"
    [ -e '${local.project}' ] || git clone -- '${data.coder_parameter.repository.value}' '${local.project}'
    cd '${local.project}'
    if [ ! -e .devcontainer.json ] && [ -z "$(find .devcontainer -name devcontainer.json 2>/dev/null)" ]; then
      echo "The repository has no devcontainer.json: using the image ${data.coder_parameter.fallback_image.value}."
      echo '{"image": "${data.coder_parameter.fallback_image.value}"}' >.devcontainer.json
      echo /.devcontainer.json >>.git/info/exclude
    fi
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

resource "coder_devcontainer" "project" {
  agent_id         = coder_agent.main.id
  workspace_folder = "/home/coder/${local.project}"
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

# The engine has the home folder at the same place as the workspace: dev containers mount the repository from there.
resource "docker_container" "engine" {
  count      = data.coder_workspace.me.start_count
  image      = var.engine_image
  name       = "${local.name}-engine"
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

  # The name follows at the next start, which makes a new container.
  lifecycle {
    ignore_changes = [name]
  }
}

data "docker_network" "bridge" {
  name = "bridge"
}

resource "docker_container" "workspace" {
  count    = data.coder_workspace.me.start_count
  image    = var.image
  name     = local.name
  hostname = local.hostname
  env      = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]

  # If the server runs on the Docker host itself, the workspace and its dev containers reach it by the address of the host's bridge.
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
  depends_on = [docker_container.engine]

  # These follow at the next start, which makes a new container.
  lifecycle {
    ignore_changes = [name, hostname, labels]
  }
}
