terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

variable "number" {
  type    = number
  default = null
}

variable "flag" {
  type    = bool
  default = null
}

variable "list" {
  type    = list(string)
  default = null
}

variable "object" {
  type    = object({ size = number })
  default = null
}

variable "text" {
  type    = string
  default = null
}

variable "numbers" {
  default = [1, 2]
}

resource "terraform_data" "values" {
  input = jsonencode([var.number, var.flag, var.list, var.object, var.text, var.numbers])
}
