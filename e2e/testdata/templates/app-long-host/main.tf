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
  slug      = "a-slug-that-is-as-long-as-the-name-of-a-whole-host-can-be"
  url       = "http://localhost:8080"
  subdomain = true
}
