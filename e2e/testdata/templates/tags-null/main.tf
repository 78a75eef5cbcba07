terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "pool" {
  type    = string
  default = null
}

data "coder_workspace_tags" "where" {
  tags = {
    environment = "secure"
    pool        = var.pool
  }
}
