# A workspace is a machine that its owner has already. No build makes anything: the owner runs a command there, which starts the agent.
terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "arch" {
  name         = "arch"
  display_name = "Processor"
  description  = "The processor of the machine, which runs Linux."
  default      = "amd64"
  order        = 1

  option {
    name  = "x86-64"
    value = "amd64"
  }
  option {
    name  = "ARM, 64 bits"
    value = "arm64"
  }
  option {
    name  = "ARM, 32 bits"
    value = "armv7"
  }
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = data.coder_parameter.arch.value

  # The owner starts the agent, now or later.
  connection_timeout = 0

  metadata {
    key          = "load"
    display_name = "Load"
    script       = "cut -d' ' -f1-3 /proc/loadavg"
    interval     = 10
    timeout      = 1
  }
}

resource "coder_external_agent" "main" {
  agent_id = coder_agent.main.id
}
