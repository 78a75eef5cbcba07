terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "pool" {
  name    = "pool"
  default = "general"
}

module "where" {
  source = "./where"
  pool   = data.coder_parameter.pool.value
}
