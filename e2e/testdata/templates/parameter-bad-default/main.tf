terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "region" {
  name    = "region"
  default = "mars"

  option {
    name  = "Europe"
    value = "eu"
  }
  option {
    name  = "America"
    value = "us"
  }
}
