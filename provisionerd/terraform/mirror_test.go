package terraform_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
)

// pluginMark tells the test binary that it is a provider of the mirror: Terraform starts providers by name and path alone.
const pluginMark = "terraform-provider-"

// TestMirrors runs a template with a provider and a module of a registry, neither of which is reachable: both come from mirrors that the
// operator's CLI configuration names. The provider is a file in a filesystem mirror, the module is served on loopback.
func TestMirrors(t *testing.T) {
	config := mirrorProvider(t, "example/mirrored")
	module := `output "answer" { value = "from-the-module" }`
	var archive bytes.Buffer
	packed := gzip.NewWriter(&archive)
	files := tar.NewWriter(packed)
	if err := files.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(module))}); err != nil {
		t.Fatal(err)
	}
	if _, err := files.Write([]byte(module)); err != nil {
		t.Fatal(err)
	}
	if err := files.Close(); err != nil {
		t.Fatal(err)
	}
	if err := packed.Close(); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /modules/v1/example/answer/any/versions", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"modules":[{"versions":[{"version":"2.0.1"}]}]}`)
	})
	mux.HandleFunc("GET /modules/v1/example/answer/any/2.0.1/download", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Terraform-Get", "./archive.tar.gz?archive=tar.gz")
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /modules/v1/example/answer/any/2.0.1/archive.tar.gz", func(w http.ResponseWriter, _ *http.Request) {
		w.Write(archive.Bytes())
	})
	registry := httptest.NewServer(mux)
	t.Cleanup(registry.Close)
	file, err := os.OpenFile(config, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "host \"modules.example.com\" {\n  services = { \"modules.v1\" = \"%s/modules/v1/\" }\n}\n", registry.URL); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TF_CLI_CONFIG_FILE", config)
	e := newExecutor(t)
	// The mirrored provider is the coder provider under another name: its schema shows what it serves.
	j := newTrial(t, map[string]string{"main.tf": `
terraform {
  required_providers {
    coder    = { source = "coder/coder" }
    mirrored = { source = "example/mirrored" }
  }
}
module "answer" {
  source  = "modules.example.com/example/answer/any"
  version = "2.0.1"
}
data "coder_workspace" "me" {}
resource "coder_agent" "far" {
  provider = mirrored
  os       = "linux"
  arch     = "amd64"
}
resource "terraform_data" "vm" {
  input = "${module.answer.answer}/${coder_agent.far.os}"
}
`})
	for round := range 2 { // the second from the cache, with the registry gone
		state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
		if got := attribute(t, state, "vm", "output"); got != "from-the-module/linux" {
			t.Errorf("round %d: value %q", round, got)
		}
		registry.Close()
	}
	if log := j.sink.text(); strings.Count(log, "Installed example/mirrored v1.2.3") > 1 {
		t.Errorf("the template was initialized more than once:\n%s", log)
	}
}
