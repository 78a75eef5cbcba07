# A workspace is a pod. The home folder is a persistent volume that outlives it.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    kubernetes = {
      source = "hashicorp/kubernetes"
    }
  }
}

variable "namespace" {
  description = "The namespace for workspaces. It must exist, and the provisioner must be allowed to manage pods and volume claims in it."
  type        = string
}

variable "use_kubeconfig" {
  description = "Whether the provisioner has a kubeconfig for templates (--provisioner-file). Otherwise it runs in the cluster, and uses its service account."
  type        = bool
  default     = false
}

provider "kubernetes" {
  config_path = var.use_kubeconfig ? "~/.kube/config" : null
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "image" {
  name         = "image"
  display_name = "Image"
  description  = "The container image. It needs curl or wget, and a user 1000 with the home folder /home/coder."
  default      = "codercom/enterprise-base:ubuntu"
  mutable      = true
  order        = 1
}

data "coder_parameter" "cpu" {
  name         = "cpu"
  display_name = "CPU (cores)"
  description  = "How many processors the pod may use."
  type         = "number"
  form_type    = "slider"
  default      = 2
  mutable      = true
  order        = 2

  validation {
    min = 1
    max = 32
  }
}

data "coder_parameter" "memory" {
  name         = "memory"
  display_name = "Memory (GiB)"
  description  = "How much memory the pod may use."
  type         = "number"
  form_type    = "slider"
  default      = 4
  mutable      = true
  order        = 3

  validation {
    min = 1
    max = 128
  }
}

data "coder_parameter" "disk" {
  name         = "disk"
  display_name = "Home folder (GiB)"
  description  = "The size of the volume. It cannot change later."
  type         = "number"
  form_type    = "slider"
  default      = 10
  mutable      = false
  order        = 4

  validation {
    min = 1
    max = 1000
  }
}

locals {
  name = "coder-${data.coder_workspace.me.id}"
  labels = merge({
    "app.kubernetes.io/name"     = "coder-workspace"
    "app.kubernetes.io/instance" = local.name
    "coder.com/workspace-id"     = data.coder_workspace.me.id
    # A prebuilt workspace has no owner yet, and keeps its pod when it gets one.
    }, data.coder_workspace.me.is_prebuild ? {} : {
    "coder.com/workspace-name" = data.coder_workspace.me.name
    "coder.com/owner"          = data.coder_workspace_owner.me.name
  })
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"

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
  metadata {
    key          = "disk"
    display_name = "Home folder"
    script       = "df -h \"$HOME\" | awk 'END { print $3 \" of \" $2 }'"
    interval     = 60
    timeout      = 5
  }
}

resource "kubernetes_persistent_volume_claim_v1" "home" {
  metadata {
    name      = "${local.name}-home"
    namespace = var.namespace
    labels    = local.labels
  }
  # A volume of a class that binds late exists only after the pod does.
  wait_until_bound = false
  spec {
    access_modes = ["ReadWriteOnce"]
    resources {
      requests = {
        storage = "${data.coder_parameter.disk.value}Gi"
      }
    }
  }

  # The volume holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = all
  }
}

resource "kubernetes_pod_v1" "workspace" {
  count = data.coder_workspace.me.start_count

  metadata {
    name      = local.name
    namespace = var.namespace
    labels    = local.labels
  }
  spec {
    # Workspaces get no access to the cluster.
    automount_service_account_token = false
    security_context {
      run_as_user = 1000
      fs_group    = 1000
    }
    container {
      name    = "workspace"
      image   = data.coder_parameter.image.value
      command = ["sh", "-c", coder_agent.main.init_script]
      env {
        name  = "CODER_AGENT_TOKEN"
        value = coder_agent.main.token
      }
      resources {
        requests = {
          cpu    = "250m"
          memory = "512Mi"
        }
        limits = {
          cpu    = tostring(data.coder_parameter.cpu.value)
          memory = "${data.coder_parameter.memory.value}Gi"
        }
      }
      volume_mount {
        name       = "home"
        mount_path = "/home/coder"
      }
    }
    volume {
      name = "home"
      persistent_volume_claim {
        claim_name = kubernetes_persistent_volume_claim_v1.home.metadata[0].name
      }
    }
  }

  # The owner's labels follow at the next start, which makes a new pod.
  lifecycle {
    ignore_changes = [metadata[0].labels]
  }
}
