terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "pool" {
  type    = string
  default = "racks"
}

data "coder_parameter" "region" {
  name    = "region"
  default = "eu"
}

data "coder_workspace_tags" "where" {
  tags = merge({ environment = "secure" }, { pool = var.pool, region = data.coder_parameter.region.value })
}
