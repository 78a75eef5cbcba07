terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_workspace_preset" "a" {
  name = "Big"
  parameters = { size = "9" }
}
