terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "region" {
  name    = "region"
  default = "eu"

  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}

data "coder_workspace_preset" "a" {
  name = "Far"
  parameters = { region = "mars" }
}
