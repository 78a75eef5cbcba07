# VS Code in the browser, from a release of code-server or openvscode-server that the server's operator provides in the folder of
# --archives-dir. Nothing comes from the internet. To add it to another template, copy this file and vscode.sh: they need a
# coder_agent named "main".
variable "vscode_archive" {
  description = "Name of the archive on the server, such as code-server-4.99.4-linux-amd64.tar.gz."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._+-]*$", var.vscode_archive))
    error_message = "The name of an archive has letters, digits, dots, underscores, plus and minus signs."
  }
}

variable "vscode_sha256" {
  description = "SHA-256 of the archive: sha256sum prints it. Workspaces run no other content."
  type        = string

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.vscode_sha256))
    error_message = "A SHA-256 has 64 hexadecimal digits."
  }
}

variable "vscode_port" {
  description = "Port of VS Code inside the workspace."
  type        = number
  default     = 13337
}

resource "coder_script" "vscode" {
  agent_id     = coder_agent.main.id
  display_name = "VS Code"
  icon         = "/icon/code.svg"
  run_on_start = true
  script = templatefile("${path.module}/vscode.sh", {
    archive = var.vscode_archive
    sha256  = var.vscode_sha256
    port    = var.vscode_port
  })
}

resource "coder_app" "vscode" {
  agent_id     = coder_agent.main.id
  slug         = "vscode"
  display_name = "VS Code"
  icon         = "/icon/code.svg"
  url          = "http://localhost:${var.vscode_port}/"
  subdomain    = true
  share        = "owner"

  healthcheck {
    url       = "http://localhost:${var.vscode_port}/"
    interval  = 5
    threshold = 24
  }
}
