# A workspace is a Linux machine on Google Cloud. Stopping the workspace stops or suspends the machine, which keeps its disk.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    google = {
      source  = "hashicorp/google"
      version = "~> 6.0"
    }
  }
}

variable "project" {
  description = "The Google Cloud project of workspaces."
  type        = string
}

variable "network" {
  description = "The network of workspaces."
  type        = string
  default     = "default"
}

variable "external_address" {
  description = "Whether machines have an address in the internet, which is their way out. A network with Cloud NAT needs none."
  type        = bool
  default     = true
}

variable "service_account" {
  description = "The service account whose identity machines have. It needs no permissions. Empty means the project's default one for Compute Engine."
  type        = string
  default     = ""
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "zone" {
  name         = "zone"
  display_name = "Zone"
  description  = "Where the machine is."
  default      = "us-central1-a"
  mutable      = false
  order        = 1

  option {
    name  = "Iowa"
    value = "us-central1-a"
  }
  option {
    name  = "Oregon"
    value = "us-west1-a"
  }
  option {
    name  = "Belgium"
    value = "europe-west1-b"
  }
  option {
    name  = "Frankfurt"
    value = "europe-west3-a"
  }
  option {
    name  = "Mumbai"
    value = "asia-south1-a"
  }
  option {
    name  = "Singapore"
    value = "asia-southeast1-a"
  }
}

data "coder_parameter" "size" {
  name         = "size"
  display_name = "Machine"
  description  = "How large the machine is."
  default      = "e2-standard-2"
  mutable      = true
  order        = 2

  option {
    name  = "2 CPUs, 4 GiB"
    value = "e2-medium"
  }
  option {
    name  = "2 CPUs, 8 GiB"
    value = "e2-standard-2"
  }
  option {
    name  = "4 CPUs, 16 GiB"
    value = "e2-standard-4"
  }
  option {
    name  = "8 CPUs, 32 GiB"
    value = "e2-standard-8"
  }
}

data "coder_parameter" "disk" {
  name         = "disk"
  display_name = "Disk (GiB)"
  description  = "The size of the machine's disk. It can grow later."
  type         = "number"
  form_type    = "slider"
  default      = 30
  mutable      = true
  order        = 3

  validation {
    min       = 20
    max       = 1000
    monotonic = "increasing"
  }
}

data "coder_parameter" "spot" {
  name         = "spot"
  display_name = "Spot"
  description  = "Costs less, but Google may stop the machine at any time. The disk stays."
  type         = "bool"
  form_type    = "switch"
  default      = false
  mutable      = true
  order        = 4
}

data "coder_parameter" "on_stop" {
  name         = "on_stop"
  display_name = "When the workspace stops"
  description  = "A suspended machine goes on where it was, and Google charges for its memory. Spot machines always stop."
  default      = "stop"
  mutable      = true
  order        = 5

  option {
    name  = "Stop the machine"
    value = "stop"
  }
  option {
    name  = "Suspend the machine"
    value = "suspend"
  }
}

data "coder_workspace_preset" "small" {
  name    = "Small"
  default = true
  parameters = {
    size    = "e2-medium"
    disk    = "30"
    spot    = "false"
    on_stop = "stop"
  }
}

data "coder_workspace_preset" "large" {
  name = "Large"
  parameters = {
    size    = "e2-standard-8"
    disk    = "100"
    spot    = "false"
    on_stop = "suspend"
  }
}

data "coder_workspace_preset" "spot" {
  name = "Large, spot"
  parameters = {
    size    = "e2-standard-8"
    disk    = "100"
    spot    = "true"
    on_stop = "stop"
  }
}

# The machine proves who it is with a document that the cloud signs: no token is in its user data, which every program there can read.
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  auth = "google-instance-identity"

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

locals {
  # A name without the owner: a prebuilt workspace keeps its machine when it gets one.
  name = "coder-${data.coder_workspace.me.id}"

  # cloud-init makes the account, and a service that starts the agent at every boot.
  cloud_config = "#cloud-config\n${yamlencode({
    users = [{
      name        = "coder"
      uid         = 1000
      shell       = "/bin/bash"
      sudo        = "ALL=(ALL) NOPASSWD:ALL"
      lock_passwd = true
    }]
    write_files = [
      { path = "/opt/coder/agent", permissions = "0755", content = coder_agent.main.init_script },
      { path = "/etc/systemd/system/coder-agent.service", content = local.agent_unit },
    ]
    runcmd = [
      ["systemctl", "daemon-reload"],
      ["systemctl", "enable", "--now", "--no-block", "coder-agent.service"],
    ]
  })}"

  agent_unit = <<-EOT
    [Unit]
    Description=Coder agent
    Wants=network-online.target
    After=network-online.target

    [Service]
    User=coder
    WorkingDirectory=/home/coder
    ExecStart=/opt/coder/agent
    Restart=always
    RestartSec=5

    [Install]
    WantedBy=multi-user.target
  EOT
}

provider "google" {
  project = var.project
  zone    = data.coder_parameter.zone.value
}

data "google_compute_default_service_account" "default" {
  count = var.service_account == "" ? 1 : 0
}

resource "google_compute_disk" "disk" {
  name   = local.name
  zone   = data.coder_parameter.zone.value
  image  = "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
  type   = "pd-balanced"
  size   = data.coder_parameter.disk.value
  labels = { coder-workspace = data.coder_workspace.me.id }

  # The disk holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = [name, image, type, labels]
  }
}

# The agent connects to the server: nothing needs a port here. This also closes what the network opens for all its machines.
resource "google_compute_firewall" "closed" {
  name          = local.name
  network       = var.network
  direction     = "INGRESS"
  priority      = 0
  source_ranges = ["0.0.0.0/0"]
  target_tags   = [local.name]

  deny {
    protocol = "all"
  }
}

resource "google_compute_instance" "workspace" {
  name                      = local.name
  zone                      = data.coder_parameter.zone.value
  machine_type              = data.coder_parameter.size.value
  tags                      = [local.name]
  labels                    = { coder-workspace = data.coder_workspace.me.id }
  allow_stopping_for_update = true

  desired_status = (
    data.coder_workspace.me.start_count == 1 ? "RUNNING" :
    data.coder_parameter.on_stop.value == "suspend" && !data.coder_parameter.spot.value ? "SUSPENDED" : "TERMINATED"
  )

  metadata = {
    block-project-ssh-keys = "true"
    user-data              = local.cloud_config
  }

  boot_disk {
    source      = google_compute_disk.disk.self_link
    auto_delete = false
  }

  network_interface {
    network = var.network

    dynamic "access_config" {
      for_each = var.external_address ? [1] : []
      content {}
    }
  }

  # The machine's identity is that of a service account. The scope keeps programs there from using it for anything else.
  service_account {
    email  = var.service_account != "" ? var.service_account : data.google_compute_default_service_account.default[0].email
    scopes = ["userinfo-email"]
  }

  scheduling {
    provisioning_model          = data.coder_parameter.spot.value ? "SPOT" : "STANDARD"
    preemptible                 = data.coder_parameter.spot.value
    automatic_restart           = !data.coder_parameter.spot.value
    instance_termination_action = data.coder_parameter.spot.value ? "STOP" : null
  }

  shielded_instance_config {
    enable_secure_boot          = true
    enable_vtpm                 = true
    enable_integrity_monitoring = true
  }

  depends_on = [google_compute_firewall.closed]
}
