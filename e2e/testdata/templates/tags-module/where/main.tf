terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "pool" {
  type = string
}

data "coder_workspace_tags" "where" {
  tags = {
    pool = var.pool
  }
}
