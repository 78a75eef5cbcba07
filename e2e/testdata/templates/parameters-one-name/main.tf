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

data "coder_parameter" "zone" {
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
