package terraform_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/codermesh/codermesh/v2/provisionerd/provisionerpb"
	"github.com/codermesh/codermesh/v2/provisionerd/terraform"
)

// TestVendoredProviders: a template brings its provider, unpacked, in terraform.d/plugins, as templates for installations without internet do. init
// links to it by the path at which init runs; jobs run it all the same, from the first one on.
func TestVendoredProviders(t *testing.T) {
	cliConfigOf(t, "")
	base, err := os.MkdirTemp("/var/tmp", "cmvendored")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(base); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(base, pluginMark+"vendored") // the test's own program is larger than a template may be
	if out, err := exec.CommandContext(t.Context(), "cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("copy provider: %v\n%s", err, out)
	}
	e := newExecutor(t, func(o *terraform.Options) { o.Readable = []string{base} })
	all := map[string]string{"main.tf": `
terraform {
  required_providers {
    coder    = { source = "coder/coder" }
    vendored = { source = "example/vendored" }
  }
}
data "coder_workspace" "me" {}
resource "coder_agent" "far" {
  provider = vendored
  os       = "linux"
  arch     = "amd64"
}
resource "terraform_data" "vm" {
  input = coder_agent.far.os
}
`}
	for _, registry := range []string{"registry.terraform.io", "registry.opentofu.org"} {
		name := fmt.Sprintf("terraform.d/plugins/%s/example/vendored/1.2.3/%s_%s/%svendored_v1.2.3", registry, runtime.GOOS, runtime.GOARCH, pluginMark)
		all[name] = "#!/bin/sh\nexec " + program + ` "$@"` + "\n"
	}
	j := newTrial(t, all)
	for round := range 2 {
		state := ok(t, j, j.build(e, &provisionerpb.WorkspaceBuild{Transition: start})).GetState()
		if got := attribute(t, state, "vm", "output"); got != "linux" {
			t.Errorf("round %d: value %q", round, got)
		}
	}
	if log := j.sink.text(); strings.Count(log, "Installed example/vendored v1.2.3") > 1 {
		t.Errorf("the template was initialized more than once:\n%s", log)
	}
}
