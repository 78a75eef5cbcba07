# A workspace is the dev container of a Git repository, built by envbuilder from the repository's devcontainer.json on the Docker host that the
# provisioner reaches. The repository and what users change in it are on a volume that outlives the container.
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

variable "builder_image" {
  description = "The image of envbuilder, which builds dev containers, from your registry or from where its project publishes it."
  type        = string
}

variable "cache_repo" {
  description = "Repository in a container registry where layers are cached between builds, for example registry.example.com/devcontainers. Empty means none."
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
  description  = "The Git repository to work on. Its devcontainer.json describes the container."
  default      = "https://github.com/coder/envbuilder-starter-devcontainer"
  mutable      = true
  order        = 1

  validation {
    regex = "^(https?|ssh)://|^[^@ ]+@[^: ]+:"
    error = "Give the address of a Git repository, such as https://git.example.com/team/project."
  }
}

data "coder_parameter" "fallback_image" {
  name         = "fallback_image"
  display_name = "Image without a devcontainer.json"
  description  = "The container image for repositories that have no devcontainer.json, or one that cannot be built."
  default      = "codercom/enterprise-base:ubuntu"
  mutable      = true
  order        = 2
}

locals {
  # A container reaches the server by this name when the server runs on the Docker host itself.
  init_script = replace(coder_agent.main.init_script, "/localhost|127\\.0\\.0\\.1/", "host.docker.internal")
  name        = "coder-${data.coder_workspace_owner.me.name}-${lower(data.coder_workspace.me.name)}"
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_provisioner.me.arch

  # The first build takes minutes. Sessions wait for it.
  connection_timeout = 1200

  env = {
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  metadata {
    key          = "load"
    display_name = "Load"
    script       = "cut -d' ' -f1-3 /proc/loadavg"
    interval     = 10
    timeout      = 1
  }
}

resource "docker_volume" "workspaces" {
  name = "coder-${data.coder_workspace.me.id}-workspaces"

  # The volume holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = all
  }
}

resource "docker_container" "workspace" {
  count    = data.coder_workspace.me.start_count
  image    = var.builder_image
  name     = local.name
  hostname = lower(data.coder_workspace.me.name)

  # The builder runs the init script in the dev container that it has built.
  env = [
    "CODER_AGENT_TOKEN=${coder_agent.main.token}",
    "ENVBUILDER_INIT_SCRIPT=${local.init_script}",
    "ENVBUILDER_GIT_URL=${data.coder_parameter.repository.value}",
    "ENVBUILDER_FALLBACK_IMAGE=${data.coder_parameter.fallback_image.value}",
    "ENVBUILDER_CACHE_REPO=${var.cache_repo}",
  ]

  host {
    host = "host.docker.internal"
    ip   = "host-gateway"
  }
  volumes {
    container_path = "/workspaces"
    volume_name    = docker_volume.workspaces.name
  }
  labels {
    label = "coder.owner"
    value = data.coder_workspace_owner.me.name
  }
  labels {
    label = "coder.workspace_id"
    value = data.coder_workspace.me.id
  }
}
