# A workspace is a container with code-server, VS Code for the browser, on the Docker host that the provisioner reaches. The home
# folder is a volume and outlives the container.
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

provider "docker" {
  host = var.docker_host != "" ? var.docker_host : null
}

data "coder_provisioner" "me" {}
data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "image" {
  name         = "image"
  display_name = "Image"
  description  = "The container image. It needs code-server, curl or wget, and a user with the home folder /home/coder."
  default      = "codercom/code-server:latest"
  mutable      = true
  order        = 1
}

data "coder_parameter" "memory" {
  name         = "memory"
  display_name = "Memory (GiB)"
  description  = "How much memory the container may use."
  type         = "number"
  form_type    = "slider"
  default      = 4
  mutable      = true
  order        = 2

  validation {
    min = 1
    max = 64
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

  # Only the workspace's own programs reach the port. The server asks who opens the app, so code-server does not.
  startup_script = <<-EOT
    set -e
    nohup code-server --auth none --bind-addr 127.0.0.1:13337 --disable-telemetry --disable-update-check \
      >"$HOME/.code-server.log" 2>&1 </dev/null &
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

resource "coder_app" "code" {
  agent_id     = coder_agent.main.id
  slug         = "code"
  display_name = "VS Code"
  url          = "http://localhost:13337/?folder=/home/coder"
  icon         = "/icon/code.svg"
  subdomain    = true

  healthcheck {
    url       = "http://localhost:13337/healthz"
    interval  = 5
    threshold = 12
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

  # The first three follow at the next start, which makes a new container. The engine sets memory_swap: without this, every plan would change it.
  lifecycle {
    ignore_changes = [name, hostname, labels, memory_swap]
  }
}
