terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

data "coder_parameter" "secure" {
  name    = "secure"
  type    = "bool"
  default = false
}

data "coder_workspace_tags" "where" {
  count = data.coder_parameter.secure.value ? 1 : 0
  tags = {
    environment = "secure"
  }
}
