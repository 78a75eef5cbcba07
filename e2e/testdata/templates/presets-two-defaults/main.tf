terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_workspace_preset" "a" {
  name = "Big"
  default = true
}

data "coder_workspace_preset" "b" {
  name = "Small"
  default = true
}
