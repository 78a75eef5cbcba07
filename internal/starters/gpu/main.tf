# A workspace is a container with the host's NVIDIA GPUs, on the Docker host that the provisioner reaches. The home folder is a
# volume and outlives the container.
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

variable "gpus" {
  description = "The GPUs of each workspace: all, or device= with numbers or ids that are separated by commas, such as device=0,1."
  type        = string
  default     = "all"

  validation {
    condition     = can(regex("^(all|device=[A-Za-z0-9-]+(,[A-Za-z0-9-]+)*)$", var.gpus))
    error_message = "Set all, or device= with numbers or ids, such as device=0,1."
  }
}

provider "docker" {
  host = var.docker_host != "" ? var.docker_host : null
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "image" {
  name         = "image"
  display_name = "Image"
  description  = "The container image. It needs curl or wget, and a user with the home folder /home/jovyan."
  default      = "quay.io/jupyter/pytorch-notebook:cuda12-latest"
  mutable      = true
  order        = 1
}

data "coder_parameter" "memory" {
  name         = "memory"
  display_name = "Memory (GiB)"
  description  = "How much memory the container may use."
  type         = "number"
  form_type    = "slider"
  default      = 16
  mutable      = true
  order        = 2

  validation {
    min = 1
    max = 512
  }
}

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
    key          = "gpu"
    display_name = "GPU"
    script       = "nvidia-smi --query-gpu=utilization.gpu,memory.used,memory.total --format=csv,noheader"
    interval     = 10
    timeout      = 5
  }
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

resource "docker_container" "workspace" {
  count      = data.coder_workspace.me.start_count
  image      = data.coder_parameter.image.value
  name       = local.name
  hostname   = local.hostname
  entrypoint = ["sh", "-c", local.init_script]
  env        = ["CODER_AGENT_TOKEN=${coder_agent.main.token}"]
  memory     = data.coder_parameter.memory.value * 1024
  gpus       = var.gpus
  shm_size   = 2048 # MiB: programs that load data in several processes share it here

  host {
    host = "host.docker.internal"
    ip   = "host-gateway"
  }
  volumes {
    container_path = "/home/jovyan"
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

  # The first three follow at the next start, which makes a new container. The engine sets memory_swap: without this, every plan would change it.
  lifecycle {
    ignore_changes = [name, hostname, labels, memory_swap]
  }
}
