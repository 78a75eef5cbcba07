terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_workspace_preset" "a" {
  name = "Big"
}

data "coder_workspace_preset" "b" {
  name = "Big"
}
