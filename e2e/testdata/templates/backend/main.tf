terraform {
  backend "s3" {
    bucket = "states"
  }
}

resource "terraform_data" "vm" {}
