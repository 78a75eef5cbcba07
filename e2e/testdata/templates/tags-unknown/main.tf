terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "terraform_data" "center" {
  input = "chicago"
}

data "coder_workspace_tags" "where" {
  tags = {
    environment = "secure"
    data_center = terraform_data.center.output
  }
}
