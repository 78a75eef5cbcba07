terraform {
  required_providers {
    coder = {
      source = "coder/coder"
    }
  }
}

resource "coder_agent" "main" {
  os   = "linux"
  arch = "amd64"
}

resource "coder_app" "editor" {
  agent_id  = coder_agent.main.id
  slug      = "web"
  url       = "http://localhost:8080"
  subdomain = true
}

resource "coder_app" "viewer" {
  agent_id  = coder_agent.main.id
  slug      = "web"
  url       = "http://localhost:8080"
  subdomain = true
}
