# A workspace is a Windows machine on AWS. Stopping the workspace stops the machine, which keeps its disk.
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
  description  = "The size of the machine's disk. It can grow later; then extend the volume C: in Windows."
  type         = "number"
  form_type    = "slider"
  default      = 60
  mutable      = true
  order        = 3

  validation {
    min       = 40
    max       = 1000
    monotonic = "increasing"
  }
}

data "coder_workspace_preset" "small" {
  name    = "Small"
  default = true
  parameters = {
    size = "t3.large"
    disk = "60"
  }
}

data "coder_workspace_preset" "large" {
  name = "Large"
  parameters = {
    size = "m7i.2xlarge"
    disk = "150"
  }
}

# The machine proves who it is with a document that the cloud signs: no token is in its user data, which every program there can read.
resource "coder_agent" "main" {
  os   = "windows"
  arch = "amd64"
  auth = "aws-instance-identity"

  env = {
    GIT_AUTHOR_NAME     = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_AUTHOR_EMAIL    = data.coder_workspace_owner.me.email
    GIT_COMMITTER_NAME  = coalesce(data.coder_workspace_owner.me.full_name, data.coder_workspace_owner.me.name)
    GIT_COMMITTER_EMAIL = data.coder_workspace_owner.me.email
  }

  metadata {
    key          = "cpu"
    display_name = "CPU"
    script       = "coder stat cpu"
    interval     = 10
    timeout      = 5
  }
  metadata {
    key          = "disk"
    display_name = "Disk C:"
    script       = "coder stat disk --path C:\\"
    interval     = 60
    timeout      = 5
  }
}

locals {
  # A name without the owner: a prebuilt workspace keeps its machine when it gets one.
  name = "coder-${data.coder_workspace.me.id}"

  # The script makes the account, and a scheduled task that starts the agent at every boot. The account has a password that nothing keeps.
  setup = <<-EOT
    $ErrorActionPreference = 'Stop'
    $ProgressPreference = 'SilentlyContinue'
    $folder = Join-Path $env:ProgramData 'coder-agent'
    New-Item -ItemType Directory -Force -Path $folder | Out-Null
    $packed = [IO.MemoryStream]::new([Convert]::FromBase64String('${base64gzip(coder_agent.main.init_script)}'))
    $script = [IO.StreamReader]::new([IO.Compression.GZipStream]::new($packed, [IO.Compression.CompressionMode]::Decompress))
    [IO.File]::WriteAllText("$folder\agent.ps1", $script.ReadToEnd(), [Text.UTF8Encoding]::new($true))
    if (-not (Get-LocalUser -Name coder -ErrorAction SilentlyContinue)) {
      $random = [byte[]]::new(30)
      [Security.Cryptography.RandomNumberGenerator]::Create().GetBytes($random)
      $password = ConvertTo-SecureString -AsPlainText -Force ('aA1!' + [Convert]::ToBase64String($random))
      New-LocalUser -Name coder -Password $password -PasswordNeverExpires | Out-Null
      Add-LocalGroupMember -SID S-1-5-32-544 -Member coder # Administrators
    }
    $run = "/d /c powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File `"$folder\agent.ps1`" > `"$folder\agent.log`" 2>&1"
    Register-ScheduledTask -Force -TaskName coder-agent `
      -Action (New-ScheduledTaskAction -Execute cmd.exe -Argument $run) `
      -Trigger (New-ScheduledTaskTrigger -AtStartup) `
      -Principal (New-ScheduledTaskPrincipal -UserId coder -LogonType S4U -RunLevel Highest) `
      -Settings (New-ScheduledTaskSettingsSet -ExecutionTimeLimit ([TimeSpan]::Zero) -RestartCount 999 `
        -RestartInterval (New-TimeSpan -Minutes 1) -MultipleInstances IgnoreNew) | Out-Null
    Start-ScheduledTask -TaskName coder-agent
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
  owners      = ["amazon"]

  filter {
    name   = "name"
    values = ["Windows_Server-2022-English-Full-Base-*"]
  }
}

resource "aws_instance" "workspace" {
  ami                                  = data.aws_ami.image.id
  instance_type                        = data.coder_parameter.size.value
  subnet_id                            = data.aws_subnet.workspace.id
  vpc_security_group_ids               = [aws_security_group.workspace.id]
  instance_initiated_shutdown_behavior = "stop"
  user_data_base64                     = base64encode("<powershell>\n${local.setup}</powershell>\n<persist>true</persist>\n")
  tags                                 = { Name = local.name }

  # Version 2 of the metadata service only, and not for containers.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  root_block_device {
    volume_type = "gp3"
    volume_size = data.coder_parameter.disk.value
    encrypted   = true
  }

  # The disk holds people's work: no change of the template may replace the machine.
  lifecycle {
    ignore_changes = [ami, subnet_id, vpc_security_group_ids, user_data_base64, tags, root_block_device[0].encrypted, root_block_device[0].volume_type]
  }
}

resource "aws_ec2_instance_state" "workspace" {
  instance_id = aws_instance.workspace.id
  state       = data.coder_workspace.me.start_count == 1 ? "running" : "stopped"
}
