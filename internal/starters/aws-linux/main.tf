# A workspace is a Linux machine on AWS. Stopping the workspace terminates the machine; the home folder is a volume, which outlives it.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
  }
}

variable "subnets" {
  description = "The subnets of workspaces by region, for example {\"eu-west-1\": \"subnet-0a1b\"}. They need a way out. Regions without one use their default VPC."
  type        = map(string)
  default     = {}
}

data "coder_workspace" "me" {}
data "coder_workspace_owner" "me" {}

data "coder_parameter" "region" {
  name         = "region"
  display_name = "Region"
  description  = "Where the machine is."
  default      = "us-east-1"
  mutable      = false
  order        = 1

  option {
    name  = "N. Virginia"
    value = "us-east-1"
  }
  option {
    name  = "Oregon"
    value = "us-west-2"
  }
  option {
    name  = "Ireland"
    value = "eu-west-1"
  }
  option {
    name  = "Frankfurt"
    value = "eu-central-1"
  }
  option {
    name  = "Mumbai"
    value = "ap-south-1"
  }
  option {
    name  = "Singapore"
    value = "ap-southeast-1"
  }
}

data "coder_parameter" "size" {
  name         = "size"
  display_name = "Machine"
  description  = "How large the machine is."
  default      = "t3.large"
  mutable      = true
  order        = 2

  option {
    name  = "2 CPUs, 4 GiB"
    value = "t3.medium"
  }
  option {
    name  = "2 CPUs, 8 GiB"
    value = "t3.large"
  }
  option {
    name  = "4 CPUs, 16 GiB"
    value = "m7i.xlarge"
  }
  option {
    name  = "8 CPUs, 32 GiB"
    value = "m7i.2xlarge"
  }
}

data "coder_parameter" "disk" {
  name         = "disk"
  display_name = "Disk (GiB)"
  description  = "The size of the home folder. It can grow later."
  type         = "number"
  form_type    = "slider"
  default      = 30
  mutable      = true
  order        = 3

  validation {
    min       = 10
    max       = 1000
    monotonic = "increasing"
  }
}

data "coder_parameter" "spot" {
  name         = "spot"
  display_name = "Spot"
  description  = "Costs less, but AWS may take the machine away at any time. The home folder stays."
  type         = "bool"
  form_type    = "switch"
  default      = false
  mutable      = true
  order        = 4
}

data "coder_workspace_preset" "small" {
  name    = "Small"
  default = true
  parameters = {
    size = "t3.medium"
    disk = "30"
    spot = "false"
  }
}

data "coder_workspace_preset" "large" {
  name = "Large"
  parameters = {
    size = "m7i.2xlarge"
    disk = "100"
    spot = "false"
  }
}

data "coder_workspace_preset" "spot" {
  name = "Large, spot"
  parameters = {
    size = "m7i.2xlarge"
    disk = "100"
    spot = "true"
  }
}

# The machine proves who it is with a document that the cloud signs: no token is in its user data, which every program there can read.
resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
  auth = "aws-instance-identity"

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
      { path = "/opt/coder/home", permissions = "0755", content = local.home_script },
      { path = "/etc/systemd/system/coder-home.service", content = local.home_unit },
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
    Requires=coder-home.service
    After=network-online.target coder-home.service

    [Service]
    User=coder
    WorkingDirectory=/home/coder
    ExecStart=/opt/coder/agent
    Restart=always
    RestartSec=5

    [Install]
    WantedBy=multi-user.target
  EOT

  home_unit = <<-EOT
    [Unit]
    Description=Home folder on a disk of its own

    [Service]
    Type=oneshot
    RemainAfterExit=yes
    TimeoutStartSec=infinity
    ExecStart=/opt/coder/home
  EOT

  # The disk arrives after the machine has started. Only one that begins with zeros, as new ones do, gets a file system.
  home_script = <<-EOT
    #!/bin/sh
    set -eu
    disk=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_${replace(aws_ebs_volume.home.id, "-", "")}
    until [ -b "$disk" ]; do sleep 1; done
    if cmp -s -n 1048576 "$disk" /dev/zero; then
      mkfs.ext4 -q -L home "$disk"
      mount "$disk" /home/coder
      cp -r /etc/skel/. /home/coder
      chown -R coder:coder /home/coder
    else
      e2fsck -p "$disk" || [ $? -lt 4 ]
      mount "$disk" /home/coder
      resize2fs "$disk"
    fi
  EOT
}

provider "aws" {
  region = data.coder_parameter.region.value
}

data "aws_availability_zones" "open" {
  state = "available"

  # Without local zones.
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

locals {
  subnet = lookup(var.subnets, data.coder_parameter.region.value, null)
}

data "aws_subnet" "workspace" {
  id                = local.subnet
  availability_zone = local.subnet == null ? data.aws_availability_zones.open.names[0] : null
  default_for_az    = local.subnet == null ? true : null
}

# The agent connects to the server: nothing needs a port here, and none is open.
resource "aws_security_group" "workspace" {
  name        = local.name
  description = "A workspace, without open ports"
  vpc_id      = data.aws_subnet.workspace.vpc_id

  lifecycle {
    ignore_changes = [vpc_id]
  }
}

resource "aws_vpc_security_group_egress_rule" "all" {
  security_group_id = aws_security_group.workspace.id
  ip_protocol       = "-1"
  cidr_ipv4         = "0.0.0.0/0"
}

data "aws_ami" "image" {
  most_recent = true
  owners      = ["099720109477"]

  filter {
    name   = "name"
    values = ["ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-*"]
  }
}

resource "aws_ebs_volume" "home" {
  availability_zone = data.aws_subnet.workspace.availability_zone
  size              = data.coder_parameter.disk.value
  type              = "gp3"
  encrypted         = true
  tags              = { Name = "${local.name}-home" }

  # The volume holds people's work: no change of the template may replace it.
  lifecycle {
    ignore_changes = [availability_zone, type, encrypted, kms_key_id, snapshot_id, tags]
  }
}

resource "aws_instance" "workspace" {
  count                  = data.coder_workspace.me.start_count
  ami                    = data.aws_ami.image.id
  instance_type          = data.coder_parameter.size.value
  subnet_id              = data.aws_subnet.workspace.id
  vpc_security_group_ids = [aws_security_group.workspace.id]
  user_data_base64       = base64gzip(local.cloud_config)
  tags                   = { Name = local.name, Owner = data.coder_workspace_owner.me.name }

  # Version 2 of the metadata service only, and not for containers.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = 20
    encrypted   = true
  }

  dynamic "instance_market_options" {
    for_each = data.coder_parameter.spot.value ? [1] : []
    content {
      market_type = "spot"
    }
  }

  # These follow at the next start, which makes a new machine.
  lifecycle {
    ignore_changes = [ami, tags]
  }
}

# Terminating the machine shuts it down and then frees the volume: detaching it before would wait for the mounted file system.
resource "aws_volume_attachment" "home" {
  count        = data.coder_workspace.me.start_count
  device_name  = "/dev/sdf"
  volume_id    = aws_ebs_volume.home.id
  instance_id  = aws_instance.workspace[0].id
  skip_destroy = true
}
